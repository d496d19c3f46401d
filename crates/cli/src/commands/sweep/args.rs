//! Options of `sweep` and of `ablation`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use awd_lstm::HeadKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use runs::Error;
use runs::data::TextConfig;

use crate::args::{DistinctList, Overrides, SettingsFile, TrainingArgs};
use crate::commands::sweep::grid::Grid;
use crate::commands::sweep::per_head::PerHead;
use crate::commands::sweep::results;
use crate::failure::Failure;

/// Options of `sweep`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct SweepArgs {
    /// Folder with train.txt, valid.txt and test.txt [default: that of the file of --config].
    #[arg(long, value_name = "DIR", required_unless_present_any = ["config", "from"])]
    pub data: Option<PathBuf>,
    /// Folder to write runs, results, table and pictures to. The same command goes on with what is there [default:
    /// runs/sweep, or runs/sweep-2 and so on where it holds another sweep; with --from, the file's path without its ending].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The name of the folder under runs/ where none is given.
    #[arg(skip = "sweep")]
    pub name: &'static str,
    /// Output layers, separated by commas, or all: softmax, moc, mos, doc, mixtape, sigsoftmax, gss, plif, mos-plif,
    /// adaptive. A setting that a head does not have, such as the components of a softmax, makes no further runs of that head
    /// [default: those of the file of --config; softmax,mos; with --best-of, all there].
    #[arg(long)]
    pub heads: Option<Heads>,
    /// Seeds, separated by commas; everything is trained with each [default: the preset's].
    #[arg(long)]
    pub seeds: Option<DistinctList<u64>>,
    /// What is equal: sizes (as given) or parameters [default: sizes; parameters if --parameters is given]. For equal
    /// parameters a size of every model is solved for: the embedding, and with it the last LSTM of a head without mixture;
    /// or, where --d-embedding is given, the LSTMs in the proportions that they have, but the last of a head without
    /// mixture and one of --last-lstm. A mixture of more components, or of a wider last LSTM, thus has a narrower embedding.
    /// (The last LSTM of a head without mixture, unless it is untied, always is as wide as its embedding: --last-lstm is the
    /// width of both, and the other LSTMs are solved for.) What cannot be met is left out with a line that says why.
    #[arg(long, value_name = "WHAT")]
    pub equal: Option<Equal>,
    /// Numbers of parameters that models come as near to as they can, separated by commas [default: that of the mixture of
    /// softmaxes, the first of all values given].
    #[arg(long, value_name = "N")]
    pub parameters: Option<DistinctList<usize>>,
    /// Settings of one head instead of those of all, such as mos:dropout-latent=0.2,lr=15; several values with colons
    /// between them; may be given for several heads.
    #[arg(long = "for", value_name = "HEAD:SETTING=VALUE,...")]
    pub per_head: Vec<PerHead>,
    /// Random search: draw so many settings for every head (and number of parameters), a value of each setting at a time,
    /// from its values or its range. Settings may have ranges such as --lr 10..40; those above 0 are spread by factors, but
    /// for dropouts. The test text is not scored; results are ranked by validation perplexity.
    #[arg(long, value_name = "N", help_heading = "Search")]
    pub trials: Option<usize>,
    /// Seed of the draws. The first trials of more are those of fewer.
    #[arg(hide = true, long, value_name = "SEED", default_value_t = 1, help_heading = "Search")]
    pub trial_seed: u64,
    /// Train the best setting of every head (and number of parameters) in the results of this folder, or file, anew with
    /// --seeds, which must be others, and score the test text once. The best is that of the lowest validation perplexity.
    /// Other options of the procedure may be given.
    #[arg(long, value_name = "FOLDER", requires = "seeds", help_heading = "Search")]
    #[arg(conflicts_with_all = ["trials", "equal", "parameters", "per_head"])]
    pub best_of: Option<PathBuf>,
    /// Train nothing: draw the table and the pictures of these results anew, files such as results.jsonl.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["trials", "best_of", "dry_run"])]
    pub from: Vec<PathBuf>,
    /// With --from: draw into a folder that holds something, and replace what has the same name there.
    #[arg(hide = true, long, requires = "from")]
    pub force: bool,
    /// Finetune every run after it, with averaged weights, for at most so many passes over the text [default: as many as
    /// the run's].
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1)]
    pub finetune: Option<Option<usize>>,
    /// Learning rate of the finetuning [default: the preset's; that of the run where --lr is given].
    #[arg(hide = true, long, value_name = "LR", requires = "finetune")]
    pub finetune_lr: Option<f64>,
    /// Compute the rank of every run's log-probabilities in the first N contexts of the validation text.
    #[arg(long, value_name = "N")]
    pub rank: Option<usize>,
    /// List the runs, with their sizes and what is done of them, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// What is trained and how.
    #[command(flatten)]
    pub training: TrainingArgs<Grid>,
}

/// The output layers of a sweep where nothing is said.
const HEADS: [HeadKind; 2] = [HeadKind::Softmax, HeadKind::Mos];
/// Those of an ablation.
const ABLATION_HEADS: [HeadKind; 6] = [
    HeadKind::Softmax,
    HeadKind::Moc,
    HeadKind::Mos,
    HeadKind::Sigsoftmax,
    HeadKind::Plif,
    HeadKind::MosPlif,
];

impl SweepArgs {
    /// The folder of the text.
    ///
    /// # Errors
    /// If nothing names it.
    pub fn data(&self) -> Result<&Path, Failure> {
        let of_file = self.training.config.as_ref().and_then(|file| file.data.as_ref());
        let data = self.data.as_ref().or(of_file).map(PathBuf::as_path);
        data.ok_or_else(|| "sweep needs --data DIR, or `data` in the file of --config".into())
    }

    /// How the text is read: as it was for the results that settings are chosen from, if they are, unless the options say
    /// otherwise.
    ///
    /// # Errors
    /// Results that cannot be read.
    pub fn text(&self) -> Result<TextConfig, Failure> {
        let Some(path) = &self.best_of else { return Ok(self.training.text()) };
        let outcomes = results::read(path)?;
        let of_results = outcomes.iter().find_map(|outcome| outcome.exact.as_ref());
        let mut text = of_results.map_or_else(|| self.training.text(), |exact| exact.text.clone());
        self.training.text.apply_to(&mut text);
        Ok(text)
    }

    /// The folder of runs and results; where none is given, the first to try.
    pub fn out(&self) -> PathBuf {
        let beside = self.from.first().map(|file| file.with_extension(""));
        self.out.clone().or(beside).unwrap_or_else(|| Path::new("runs").join(self.name))
    }

    /// The output layers that are asked for, if any are.
    pub fn named_heads(&self) -> Option<Vec<HeadKind>> {
        let of_file = || self.training.config.as_ref().and_then(SettingsFile::heads);
        self.heads.as_ref().map(|heads| heads.0.clone()).or_else(of_file)
    }

    /// The output layers.
    pub fn heads(&self) -> Vec<HeadKind> {
        self.named_heads().unwrap_or_else(|| HEADS.to_vec())
    }

    /// The seeds.
    ///
    /// # Errors
    /// A preset that is not the file's, or a damaged setting of the file.
    pub fn seeds(&self) -> Result<Vec<u64>, Failure> {
        match &self.seeds {
            Some(seeds) => Ok(seeds.0.clone()),
            None => Ok(vec![self.training.with(Overrides::default()).procedure()?.seed]),
        }
    }

    /// What is equal.
    pub fn equal(&self) -> Equal {
        let default = if self.parameters.is_some() { Equal::Parameters } else { Equal::Sizes };
        self.equal.unwrap_or(default)
    }
}

/// Options of `ablation`: a sweep over heads at equal numbers of parameters, unless they say otherwise.
#[derive(Debug, Clone)]
pub struct AblationArgs(pub SweepArgs);

impl Args for AblationArgs {
    fn augment_args(command: Command) -> Command {
        SweepArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AblationArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = SweepArgs { name: "ablation", ..SweepArgs::from_arg_matches(matches)? };
        if args.best_of.is_none() {
            args.equal = args.equal.or(Some(Equal::Parameters));
            if args.named_heads().is_none() {
                args.heads = Some(Heads(ABLATION_HEADS.to_vec()));
            }
        }
        Ok(Self(args))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Output layers on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heads(pub Vec<HeadKind>);

impl FromStr for Heads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self(HeadKind::ALL.to_vec())),
            list => list.parse::<DistinctList<HeadKind>>().map(|heads| Self(heads.0)),
        }
    }
}

/// What the models of a sweep have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equal {
    /// Sizes, as they are given.
    Sizes,
    /// The number of parameters, as nearly as sizes allow.
    Parameters,
}

impl FromStr for Equal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "sizes" => Ok(Self::Sizes),
            "parameters" => Ok(Self::Parameters),
            other => Err(Error::unknown_name("equality", other, ["sizes", "parameters"])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: SweepArgs,
    }

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct AblationLine {
        #[command(flatten)]
        args: AblationArgs,
    }

    #[test]
    fn an_ablation_is_a_sweep_with_other_defaults() {
        let parse = |line: &str| Line::parse_from(line.split(' ')).args;
        let sweep = parse("--data d");
        assert_eq!((sweep.heads().len(), sweep.equal(), sweep.seeds().unwrap()), (2, Equal::Sizes, vec![28]));
        assert_eq!((sweep.out(), sweep.trials), (PathBuf::from("runs/sweep"), None));
        assert_eq!(parse("--data d --parameters 9").equal(), Equal::Parameters);
        assert_eq!(parse("--data d --heads all").heads(), HeadKind::ALL);
        assert_eq!(parse("--data d --finetune --rank 5").finetune, Some(None));
        assert_eq!(parse("--data d --finetune 3").finetune, Some(Some(3)));
        assert_eq!(parse("--from a/b.jsonl c.jsonl").out(), PathBuf::from("a/b"));
        let ablation = |line: &str| AblationLine::parse_from(line.split(' ')).args.0;
        let args = ablation("--data d");
        assert_eq!((args.heads().len(), args.equal()), (6, Equal::Parameters));
        assert_eq!(args.out(), PathBuf::from("runs/ablation"));
        assert_eq!(ablation("--data d --equal sizes").equal(), Equal::Sizes);
        assert_eq!(ablation("--from a/b.jsonl").out(), PathBuf::from("a/b"));
        let best = ablation("--data d --best-of f --seeds 3 --out o");
        assert_eq!((best.named_heads(), best.equal(), best.out()), (None, Equal::Sizes, PathBuf::from("o")));
    }

    #[test]
    fn options_that_do_not_go_together() {
        for (line, expected) in [
            ("--heads mos", "--data <DIR>"),
            ("--data d --best-of f", "--seeds <SEEDS>"),
            ("--data d --best-of f --seeds 1 --trials 3", "cannot be used with"),
            ("--data d --best-of f --seeds 1 --parameters 3", "cannot be used with"),
            ("--data d --best-of f --seeds 1 --for mos:lr=3", "cannot be used with"),
            ("--from f --trials 3", "cannot be used with"),
            ("--from f --dry-run", "cannot be used with"),
        ] {
            let message = crate::exit::line_of(&Line::try_parse_from(line.split(' ')).unwrap_err());
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
