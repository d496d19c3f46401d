//! Which runs a sweep makes.

use std::collections::HashSet;

use awd_lstm::data::Corpus;
use awd_lstm::train::{Fingerprint, RunConfig, Versions};
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};

use crate::args::Overrides;
use crate::commands::sweep::args::{Equal, SweepArgs};
use crate::commands::sweep::grid::{self, Axis};
use crate::device;
use crate::failure::Failure;
use crate::sizes;
use crate::training::{absolute, finetuning};

/// The most combinations of values that a sweep may have.
const MOST: usize = 10_000;
/// The name of the axis of numbers of parameters.
const PARAMETERS: &str = "parameters";

/// Settings that vary, with their values as they were given.
pub type Varying = Vec<(String, String)>;

/// A run of a sweep.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Name of its folder: the head, the settings that vary, and the seed.
    pub name: String,
    /// The settings that vary for its head.
    pub settings: Varying,
    /// Everything that defines it.
    pub config: RunConfig,
    /// The procedure of finetuning after it, if there is any.
    pub finetuning: Option<TrainConfig>,
}

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The runs, in their order: those of the first seed first.
    pub runs: Vec<Planned>,
    /// The settings with several values, numbers of parameters among them.
    pub axes: Vec<Axis>,
}

/// A run's model and procedure, but for its seed.
#[derive(Debug, Clone, PartialEq)]
struct Settings {
    model: ModelConfig,
    train: TrainConfig,
    finetuning: Option<TrainConfig>,
}

impl Plan {
    /// The plan that the arguments ask for, with all sizes solved for.
    ///
    /// # Errors
    /// Settings out of range or that do not go together, a number of parameters that a head cannot meet, more runs than are
    /// sensible.
    pub fn new(args: &SweepArgs, corpus: &Corpus) -> Result<Self, Failure> {
        let planner = Planner::new(args, corpus.vocabulary().len())?;
        let fingerprint = Fingerprint::of(corpus);
        let mut runs = vec![];
        for seed in args.seeds() {
            for &head in &args.heads.0 {
                for (settings, of_run) in planner.of_head(head)? {
                    let varying =
                        settings.iter().map(|(flag, value)| format!("-{}{}", short(flag), plain(value)));
                    let name = format!("{head}{}-s{seed}", varying.collect::<String>());
                    let config = RunConfig {
                        versions: Versions::current(),
                        preset: args.training.preset().to_string(),
                        device: device::resolve(args.training.device()).to_string(),
                        data: absolute(&args.data),
                        corpus: fingerprint.clone(),
                        text: args.training.text(),
                        finetunes: None,
                        model: of_run.model,
                        train: TrainConfig { seed, ..of_run.train },
                        extensions: vec![],
                    };
                    let finetuning = of_run.finetuning.map(|train| TrainConfig { seed, ..train });
                    runs.push(Planned { name, settings, config, finetuning });
                }
            }
        }
        let axes = planner.axes.into_iter().filter(|axis| axis.values.len() > 1).collect();
        Ok(Self { runs, axes })
    }
}

/// What the settings of a run are made of.
struct Planner<'a> {
    args: &'a SweepArgs,
    /// Number of words.
    vocab: usize,
    /// All settings given, and the numbers of parameters at the end.
    axes: Vec<Axis>,
    /// The number of parameters where none is given; none for equal sizes.
    budget: Option<usize>,
}

impl<'a> Planner<'a> {
    fn new(args: &'a SweepArgs, vocab: usize) -> Result<Self, Failure> {
        let mut axes = args.training.overrides.axes.clone();
        let equal = args.equal();
        if let Some(budgets) = &args.parameters {
            if equal == Equal::Sizes {
                return Err("--parameters needs --equal parameters".into());
            }
            let values = budgets.0.iter().map(usize::to_string).collect();
            axes.push(Axis { flag: PARAMETERS.into(), values });
        }
        let combinations =
            axes.iter().try_fold(1, |product: usize, axis| product.checked_mul(axis.values.len()));
        if combinations.is_none_or(|combinations| combinations > MOST) {
            return Err(
                format!("a sweep over more than {MOST} combinations of values would never end").into()
            );
        }
        if let Some(other) = args.per_head.iter().find(|of| !args.heads.0.contains(&of.head)) {
            let head = other.head;
            return Err(format!("--for names the head {head}, which is not among --heads").into());
        }
        let mut planner = Self { args, vocab, axes, budget: None };
        if equal == Equal::Parameters && args.parameters.is_none() {
            let first = vec![0; planner.axes.len()];
            let overrides = grid::overrides(planner.chosen(&first).into_iter())?;
            planner.budget = Some(planner.base(HeadKind::Mos, &overrides).num_params());
        }
        Ok(planner)
    }

    /// The settings of a combination of values.
    fn chosen(&self, combination: &[usize]) -> Vec<(&str, &str)> {
        let settings = self.axes.iter().filter(|axis| axis.flag != PARAMETERS).zip(combination);
        settings.map(|(axis, &index)| (axis.flag.as_str(), axis.values[index].as_str())).collect()
    }

    /// Every combination of values, the last axis fastest.
    fn combinations(&self) -> Vec<Vec<usize>> {
        self.axes.iter().fold(vec![vec![]], |before, axis| {
            let longer = |combination: Vec<usize>| {
                (0..axis.values.len()).map(move |index| combination.iter().copied().chain([index]).collect())
            };
            before.into_iter().flat_map(longer).collect()
        })
    }

    /// All different runs of a head, each with the settings that vary for this head.
    fn of_head(&self, head: HeadKind) -> Result<Vec<(Varying, Settings)>, Failure> {
        let combinations = self.combinations();
        let all: Vec<Settings> = combinations
            .iter()
            .map(|combination| {
                self.settings(head, combination).map_err(|error| self.at(head, combination, &error))
            })
            .collect::<Result<_, _>>()?;
        // How far apart in `all` two combinations are whose values of an axis are neighbours.
        let strides: Vec<usize> = (0..self.axes.len())
            .map(|axis| self.axes[axis + 1..].iter().map(|axis| axis.values.len()).product())
            .collect();
        let varies: Vec<bool> = strides
            .iter()
            .enumerate()
            .map(|(axis, stride)| {
                let changes = |(index, combination): (usize, &Vec<usize>)| {
                    combination[axis] > 0 && all[index] != all[index - stride]
                };
                combinations.iter().enumerate().any(changes)
            })
            .collect();
        let mut seen = HashSet::new();
        let mut runs = vec![];
        for (combination, settings) in combinations.iter().zip(all) {
            let varying: Varying = (0..self.axes.len())
                .filter(|&axis| varies[axis])
                .map(|axis| (self.axes[axis].flag.clone(), self.axes[axis].values[combination[axis]].clone()))
                .collect();
            // Combinations that differ in what the head does not have are one run.
            if seen.insert(varying.clone()) {
                runs.push((varying, settings));
            }
        }
        Ok(runs)
    }

    /// Model and procedure of a combination, checked.
    fn settings(&self, head: HeadKind, combination: &[usize]) -> Result<Settings, Failure> {
        let of_head: Vec<(&str, &str)> = self
            .args
            .per_head
            .iter()
            .filter(|of| of.head == head)
            .flat_map(|of| of.settings.iter().map(|(flag, value)| (flag.as_str(), value.as_str())))
            .collect();
        let mut chosen = self.chosen(combination);
        chosen.retain(|(flag, _)| of_head.iter().all(|(other, _)| other != flag));
        let overrides = grid::overrides(chosen.into_iter().chain(of_head))?;
        let given = self.axes.last().filter(|axis| axis.flag == PARAMETERS);
        let budget = match (given, combination.last()) {
            (Some(axis), Some(&index)) => Some(axis.values[index].parse()?),
            _ => self.budget,
        };
        let base = self.base(head, &overrides);
        let mut model = match budget {
            None => base,
            Some(budget) if overrides.d_embedding.is_some() => sizes::matching_lstm(&base, budget)?,
            Some(budget) => sizes::matching(&base, budget)?,
        };
        self.neutralise(&mut model);
        model.validate()?;
        // A rate that was chosen for training is also better for finetuning than the preset's.
        let lr = self.args.finetune_lr.or(overrides.lr);
        let train = self.args.training.with(overrides).procedure()?;
        let finetuning = self.args.finetune.map(|epochs| {
            let overrides = Overrides { lr, epochs, ..Overrides::default() };
            finetuning(self.args.training.preset().name(), &train, &overrides)
        });
        let finetuning = finetuning.transpose()?;
        Ok(Settings { model, train, finetuning })
    }

    /// The model before any size is solved for.
    fn base(&self, head: HeadKind, overrides: &Overrides) -> ModelConfig {
        let mut model = self.args.training.with(overrides.clone()).model(head, self.vocab);
        if let (true, false, Some(last)) = (model.tied, head.is_mixture(), model.lstm_sizes.last_mut()) {
            *last = model.d_embedding;
        }
        model
    }

    /// Sets what the head ignores to the preset's, so that runs that differ in nothing else are the same.
    fn neutralise(&self, model: &mut ModelConfig) {
        let neutral = self.args.training.preset().model(model.head, self.vocab);
        if !model.head.is_mixture() {
            model.components = neutral.components;
            model.dropouts.latent = neutral.dropouts.latent;
        }
        if !model.head.has_plif() {
            model.knots = neutral.knots;
            model.plif_bound = neutral.plif_bound;
        }
    }

    /// An error that says of which run it is.
    fn at(&self, head: HeadKind, combination: &[usize], error: &Failure) -> Failure {
        let several = self.axes.iter().zip(combination).filter(|(axis, _)| axis.values.len() > 1);
        let settings = several.map(|(axis, &index)| format!(", {} {}", axis.flag, axis.values[index]));
        format!("{head}{}: {error}", settings.collect::<String>()).into()
    }
}

/// A setting in the name of a folder.
fn short(flag: &str) -> &str {
    match flag {
        "d-embedding" => "d",
        "components" => "k",
        PARAMETERS => "p",
        other => other,
    }
}

/// A value in the name of a folder.
fn plain(value: &str) -> String {
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "+-.".contains(letter) { letter } else { '_' };
    value.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::data::Vocabulary;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: SweepArgs,
    }

    fn plan(line: &str) -> Result<Plan, Failure> {
        let mut vocabulary = Vocabulary::new();
        for word in 0..30 {
            vocabulary.insert(&format!("word{word}"));
        }
        let corpus = Corpus::from_ids(vocabulary, vec![0; 9], vec![0; 9], vec![0; 9]).unwrap();
        let words = ["--data", "d"].into_iter().chain(line.split_whitespace());
        Plan::new(&Line::try_parse_from(words)?.args, &corpus)
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.runs.iter().map(|run| run.name.as_str()).collect()
    }

    #[test]
    fn runs_are_heads_by_values_by_seeds_without_duplicates() {
        let plan =
            plan("--lstm 16,12 --d-embedding 8,16 --components 2,3 --knots 7 --lr 5 --seeds 1,2").unwrap();
        let of_seed = |seed| {
            ["softmax-d8", "softmax-d16", "mos-d8-k2", "mos-d8-k3", "mos-d16-k2", "mos-d16-k3"]
                .map(|name| format!("{name}-s{seed}"))
        };
        assert_eq!(names(&plan), of_seed(1).into_iter().chain(of_seed(2)).collect::<Vec<_>>());
        assert_eq!(
            plan.axes.iter().map(|axis| axis.flag.as_str()).collect::<Vec<_>>(),
            ["d-embedding", "components"]
        );
        let last = &plan.runs[11];
        assert_eq!(
            last.settings,
            [("d-embedding", "16"), ("components", "3")].map(|(a, b)| (a.into(), b.into()))
        );
        let (model, train) = (&last.config.model, &last.config.train);
        assert_eq!(
            (model.d_embedding, model.components, model.lstm_sizes.as_slice()),
            (16, 3, [16, 12].as_slice())
        );
        assert_eq!((train.seed, train.lr), (2, 5.0));
        // A head without mixture has an LSTM as wide as its embedding, and the preset's components.
        let softmax = &plan.runs[1].config.model;
        assert_eq!((softmax.lstm_sizes.as_slice(), softmax.components), ([16, 16].as_slice(), 5));
    }

    #[test]
    fn settings_of_one_head_replace_those_of_all() {
        let plan = plan("--lr 5,6 --for mos:lr=7,lstm=9,8 --for mos:components=2 --seeds 1").unwrap();
        assert_eq!(names(&plan), ["softmax-lr5-s1", "softmax-lr6-s1", "mos-s1"]);
        let mos = &plan.runs[2].config;
        assert_eq!(
            (mos.train.lr, mos.model.lstm_sizes.as_slice(), mos.model.components),
            (7.0, [9, 8].as_slice(), 2)
        );
    }

    #[test]
    fn parameters_are_equal_by_the_embedding_or_the_lstms() {
        let of = |plan: &Plan| plan.runs.iter().map(|run| run.config.model.clone()).collect::<Vec<_>>();
        let by_embedding = plan("--lstm 16,12 --equal parameters --components 2,20 --seeds 1").unwrap();
        assert_eq!(names(&by_embedding), ["softmax-s1", "mos-k2-s1", "mos-k20-s1"]);
        let models = of(&by_embedding);
        assert!(
            models[1].d_embedding > 2 * models[2].d_embedding && models[1].lstm_sizes == models[2].lstm_sizes
        );
        let budget = models[1].num_params() as f64;
        assert!(
            models.iter().all(|model| (model.num_params() as f64 / budget - 1.0).abs() < 0.02),
            "{models:?}"
        );

        let by_lstm = plan("--lstm 16,12 --parameters 20000,40000 --d-embedding 8,24 --seeds 1").unwrap();
        let expected = ["d8-p20000", "d8-p40000", "d24-p20000", "d24-p40000"];
        let expected: Vec<String> = ["softmax", "mos"]
            .iter()
            .flat_map(|head| expected.map(|name| format!("{head}-{name}-s1")))
            .collect();
        assert_eq!(names(&by_lstm), expected);
        for (index, model) in of(&by_lstm).iter().enumerate() {
            let budget = [20000.0, 40000.0][index % 2];
            assert_eq!(model.d_embedding, [8, 24][index / 2 % 2]);
            assert!((model.num_params() as f64 / budget - 1.0).abs() < 0.02, "{model:?}");
        }
    }

    #[test]
    fn what_cannot_be_planned_is_one_line() {
        for (line, expected) in [
            ("--lr 5,0", "softmax, lr 0: lr is 0"),
            ("--components 3,0", "mos, components 0: components is 0"),
            ("--parameters 9 --equal sizes", "--parameters needs --equal parameters"),
            ("--parameters 9", "softmax: parameters is 9, but"),
            ("--for moc:lr=3", "--for names the head moc"),
            ("--lr-decay 0.5", "softmax: --lr-decay needs"),
            ("--lr-decay-from 3 --lr-decay-on-plateau --lr-decay 0.5", "cannot be used with"),
            ("--finetune 0", "softmax: epochs is 0"),
            ("--finetune --finetune-lr 0", "softmax: lr is 0"),
        ] {
            let message = plan(line).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{line}: {message}");
        }
        let many: Vec<String> = (1..102).map(|value| value.to_string()).collect();
        let many = many.join(",");
        let message = plan(&format!("--lr {many} --clip {many}")).unwrap_err().to_string();
        assert!(message.contains("more than 10000 combinations"), "{message}");
    }

    #[test]
    fn names_of_folders_are_plain() {
        let plan = plan("--heads mos --lstm 16,12:9 --dropout-latent 0.1,0.2 --seeds 1").unwrap();
        assert_eq!(names(&plan)[0], "mos-lstm16_12-dropout-latent0.1-s1");
        assert_eq!(plan.runs.len(), 4);
    }
}
