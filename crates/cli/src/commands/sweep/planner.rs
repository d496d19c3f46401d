//! Model and procedure of a head with chosen settings.

use awd_lstm::sizes::{self, LastLstm};
use awd_lstm::{HeadKind, ModelConfig};
use program::args::Given;
use program::failure::Failure;

use crate::args::{Overrides, missing_part};
use crate::commands::sweep::args::{Equal, SweepArgs};
use crate::commands::sweep::grid::{self, Axis};
use crate::commands::sweep::planned::{Choice, PARAMETERS, Settings};
use crate::training::finetuning;

/// A model whose number of parameters is off by more than one part in so many is not of the size that was asked for.
const NEAR: usize = 10;

/// What the settings of a run are made of.
pub struct Planner<'a> {
    args: &'a SweepArgs,
    vocab: usize,
    /// The number of parameters where none is chosen; none for equal sizes.
    budget: Option<usize>,
}

impl<'a> Planner<'a> {
    /// A planner of models for so many words.
    pub fn new(args: &'a SweepArgs, vocab: usize) -> Result<Self, Failure> {
        let equal = args.equal();
        if args.parameters.is_some() && equal == Equal::Sizes {
            return Err("--parameters needs --equal parameters".into());
        }
        let heads = args.heads();
        if let Some(other) = args.per_head.iter().find(|of| !heads.contains(&of.head)) {
            let head = other.head;
            return Err(format!("--for names the head {head}, which is not among --heads").into());
        }
        let mut planner = Self { args, vocab, budget: None };
        if equal == Equal::Parameters && args.parameters.is_none() {
            let axes = args.grid.axes.iter();
            let first = axes.map(|axis| (axis.flag.as_str(), axis.values[0].as_str()));
            let overrides = grid::overrides(first)?;
            planner.budget = Some(planner.base(HeadKind::Mos, &overrides).num_params());
        }
        Ok(planner)
    }

    /// The settings that were given and that a head has, its own in the place of those of all, without numbers of parameters.
    pub fn axes(&self, head: HeadKind) -> Vec<Axis> {
        let own = || self.args.per_head.iter().filter(|of| of.head == head).flat_map(|of| &of.settings);
        let of_all = self.args.grid.axes.iter();
        let of_all = of_all.filter(|axis| own().all(|other| other.flag != axis.flag));
        let mut axes: Vec<Axis> = vec![];
        // The last one given of a head that has several `--for`.
        for axis in of_all.chain(own()) {
            axes.retain(|other| other.flag != axis.flag);
            axes.push(axis.clone());
        }
        axes.retain(|axis| has(head, &axis.flag));
        axes
    }

    /// The numbers of parameters as an axis, if any are given.
    pub fn budgets(&self) -> Option<Axis> {
        let budgets = self.args.parameters.as_ref()?;
        Some(Axis::new(PARAMETERS, budgets.0.iter().map(usize::to_string).collect()))
    }

    /// Model and procedure of chosen values, [`PARAMETERS`] among them, checked; or why no sizes meet the number of parameters.
    pub fn settings(&self, head: HeadKind, chosen: &[Choice]) -> Result<Result<Settings, Failure>, Failure> {
        let (budgets, chosen): (Vec<Choice>, Vec<Choice>) =
            chosen.iter().partition(|(flag, _)| *flag == PARAMETERS);
        let mut overrides = grid::overrides(chosen.into_iter())?;
        overrides.given = overrides.given.and(&self.args.grid.set);
        let budget = match budgets.first() {
            Some((_, budget)) => Some(budget.parse()?),
            None => self.budget,
        };
        let base = self.base(head, &overrides);
        base.validate()?;
        let model = match budget.map(|budget| self.solved(&base, &overrides, budget)) {
            None => base,
            Some(Ok(model)) => model,
            Some(Err(reason)) => return Ok(Err(reason)),
        };
        model.validate()?;
        // A rate that was chosen for training is also better for finetuning than the preset's.
        let lr = self.args.finetune_lr.or(overrides.given.value("train.lr"));
        let train = self.args.training.procedure(&overrides)?;
        let preset = self.args.training.preset();
        let finetuning = self.args.finetune.map(|epochs| {
            let given = Given::default().with("train.lr", lr).with("train.epochs", epochs);
            let overrides = Overrides::of(given);
            finetuning(preset.name(), &train, &overrides)
        });
        let finetuning = finetuning.transpose()?;
        Ok(Ok(Settings { model, train, finetuning }))
    }

    /// The model of `budget` parameters.
    fn solved(
        &self,
        base: &ModelConfig,
        overrides: &Overrides,
        budget: usize,
    ) -> Result<ModelConfig, Failure> {
        let last = if overrides.last_lstm.is_some() { LastLstm::Given } else { LastLstm::Free };
        // The width of the last LSTM is that of the embedding there.
        let one_width = base.tied && !base.head.has_contexts();
        let model = match overrides.d_embedding.is_some() || (one_width && last == LastLstm::Given) {
            true => sizes::matching_lstm(base, budget, last)?,
            false => sizes::matching(base, budget, last)?,
        };
        let parameters = model.num_params();
        match parameters.abs_diff(budget) > budget / NEAR {
            true => Err(format!(
                "parameters is {budget}, but the {} head comes no nearer than {parameters}",
                model.head
            )
            .into()),
            false => Ok(model),
        }
    }

    /// The model before any size is solved for.
    fn base(&self, head: HeadKind, overrides: &Overrides) -> ModelConfig {
        let mut model = self.args.training.model(head, self.vocab, overrides);
        if let (true, false, Some(last)) = (model.tied, head.has_contexts(), model.lstm_sizes.last_mut()) {
            *last = model.d_embedding;
        }
        model
    }
}

/// Whether a head has the setting `flag`; it ignores those of parts that it lacks.
pub fn has(head: HeadKind, flag: &str) -> bool {
    missing_part(head, flag).is_none()
}
