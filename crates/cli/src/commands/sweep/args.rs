//! Options of `sweep` and of `ablation`.

use std::path::PathBuf;
use std::str::FromStr;

use awd_lstm::{Error, HeadKind};
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::args::{DistinctList, TrainingArgs};
use crate::commands::sweep::grid::Grid;
use crate::commands::sweep::per_head::PerHead;

/// Options of `sweep`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct SweepArgs {
    /// Folder with train.txt, valid.txt and test.txt.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Folder to write runs, results, table and pictures to. The same command goes on with what is there.
    #[arg(long, value_name = "DIR", default_value = "runs/sweep")]
    pub out: PathBuf,
    /// Output layers, separated by commas, or all: softmax, moc, mos, sigsoftmax, gss, plif, mos-plif. A setting that a
    /// head does not have, such as the components of a softmax, makes no further runs of that head.
    #[arg(long, default_value = "softmax,mos")]
    pub heads: Heads,
    /// Seeds, separated by commas; everything is trained with each [default: the preset's].
    #[arg(long)]
    pub seeds: Option<DistinctList<u64>>,
    /// What is equal: sizes (as given) or parameters [default: sizes; parameters if --parameters is given]. For equal
    /// parameters a size of every model is solved for: the embedding, and with it the last LSTM of a head without mixture;
    /// or, where --d-embedding is given, the LSTMs in the proportions that they have, but the last of a head without
    /// mixture. A mixture of more components thus has a narrower embedding. (The last LSTM of a head without mixture,
    /// unless it is untied, always is as wide as its embedding.)
    #[arg(long, value_name = "WHAT")]
    pub equal: Option<Equal>,
    /// Numbers of parameters that models come as near to as they can, separated by commas [default: that of the mixture of
    /// softmaxes, the first of all values given].
    #[arg(long, value_name = "N")]
    pub parameters: Option<DistinctList<usize>>,
    /// Settings of one head instead of those of all, such as mos:dropout-latent=0.2,lr=15; may be given for several heads.
    #[arg(long = "for", value_name = "HEAD:SETTING=VALUE,...")]
    pub per_head: Vec<PerHead>,
    /// Finetune every run after it, with averaged weights, for at most so many passes over the text [default: as many as
    /// the run's].
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1)]
    pub finetune: Option<Option<usize>>,
    /// Learning rate of the finetuning [default: the preset's; that of the run where --lr is given].
    #[arg(long, value_name = "LR", requires = "finetune")]
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

impl SweepArgs {
    /// The seeds.
    pub fn seeds(&self) -> Vec<u64> {
        self.seeds.as_ref().map_or_else(|| vec![self.training.preset().train().seed], |seeds| seeds.0.clone())
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
            .mut_arg("heads", |arg| arg.default_value("softmax,moc,mos,sigsoftmax,plif,mos-plif"))
            .mut_arg("equal", |arg| arg.default_value("parameters"))
            .mut_arg("out", |arg| arg.default_value("runs/ablation"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AblationArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        SweepArgs::from_arg_matches(matches).map(Self)
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
        assert_eq!((sweep.heads.0.len(), sweep.equal(), sweep.seeds()), (2, Equal::Sizes, vec![28]));
        assert_eq!(parse("--data d --parameters 9").equal(), Equal::Parameters);
        assert_eq!(parse("--data d --heads all").heads.0, HeadKind::ALL);
        assert_eq!(parse("--data d --finetune --rank 5").finetune, Some(None));
        assert_eq!(parse("--data d --finetune 3").finetune, Some(Some(3)));
        let AblationArgs(args) = AblationLine::parse_from(["--data", "d"]).args;
        assert_eq!((args.heads.0.len(), args.equal()), (6, Equal::Parameters));
        assert_eq!(args.out, PathBuf::from("runs/ablation"));
        let AblationArgs(args) = AblationLine::parse_from(["--data", "d", "--equal", "sizes"]).args;
        assert_eq!(args.equal(), Equal::Sizes);
    }
}
