//! Training of models one after the other, which may be stopped at any moment and continued.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Tensor;
use runs::Error;
use runs::optim::number_parameters;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::synthetic::fit_args::FitArgs;
use crate::synthetic::kept::{Kept, settings};
use program::failure::{Failure, Incomplete};
use program::interrupt::Interrupt;
use program::progress::ShareBar;

/// Fits that are made one after the other: those that a folder has are read from it, others are trained.
pub struct Fits {
    kept: Option<Kept>,
    interrupt: Interrupt,
    checkpoint_every: Duration,
    /// When the time is over.
    end: Option<Instant>,
    done: usize,
    all: usize,
}

/// How a model is trained.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of training steps.
    pub steps: usize,
    /// Adam's learning rate at the start; it falls linearly to 0.
    pub lr: f64,
    /// Adam without steps.
    pub adam: AdamConfig,
}

/// Steps between two looks at the loss, for which a GPU waits.
const LOOK_EVERY: usize = 50;

impl Fits {
    /// Prepares `all` fits.
    ///
    /// # Errors
    /// A folder that cannot be used.
    pub fn new(args: &FitArgs, all: usize) -> Result<Self, Failure> {
        Ok(Self {
            kept: args.out.as_deref().map(Kept::open).transpose()?,
            interrupt: Interrupt::install()?,
            checkpoint_every: Duration::from_secs_f64(60.0 * args.checkpoint_every),
            // What the clock does not reach is no limit.
            end: args.max_time.and_then(|minutes| {
                Instant::now().checked_add(Duration::try_from_secs_f64(60.0 * minutes).ok()?)
            }),
            done: 0,
            all,
        })
    }

    /// The result of a fit: that which is kept, or what `fit` says of a model that it [trains](Self::train) with these settings.
    ///
    /// # Errors
    /// What `fit` says, or a file that cannot be read or written.
    pub fn result<R: Serialize + DeserializeOwned>(
        &mut self,
        of: &impl Serialize,
        fit: impl FnOnce(&mut Self, &Value) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let of = settings(of)?;
        let found = self.kept.as_ref().map(|kept| kept.result(&of)).transpose()?.flatten();
        let result = match found {
            Some(result) => result,
            None => {
                let result = fit(self, &of)?;
                if let Some(kept) = &mut self.kept {
                    kept.keep(of, &result)?;
                }
                result
            }
        };
        self.done += 1;
        Ok(result)
    }

    /// Trains a model by Adam, from where it was stopped, if it was; `loss` makes the loss of a step from the model and the step's
    /// number, and depends on nothing else. Returns the model, with autodiff, or none if the training diverged; and the wall-clock
    /// time of its steps.
    ///
    /// # Errors
    /// An interrupt, or the end of the time: the fit is then saved. A file that cannot be read or written.
    pub fn train<M: Module>(
        &mut self,
        (settings, label): (&Value, &str),
        plan: &Plan,
        model: M,
        mut loss: impl FnMut(&M, usize) -> Tensor<1>,
    ) -> Result<(Option<M>, f64), Failure> {
        let (mut model, mut optimiser) = (number_parameters(model), plan.adam.init());
        let (mut step, mut before) = (0, 0.0);
        if let Some(kept) = &self.kept {
            let (saved, state, position) = kept.resume(settings, model, optimiser)?;
            (model, optimiser, step, before) = (saved, state, position.step, position.seconds);
        }
        let bar = ShareBar::new(&format!("fit {} of {}: {label}", self.done + 1, self.all));
        let (start, mut saved) = (Instant::now(), Instant::now());
        let seconds = |before: f64| before + start.elapsed().as_secs_f64();
        while step < plan.steps {
            let loss = loss(&model, step);
            let look = step.is_multiple_of(LOOK_EVERY) || step + 1 == plan.steps;
            if look && !loss.clone().into_scalar::<f64>().is_finite() {
                return Ok((None, seconds(before)));
            }
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimiser.step(plan.lr * (1.0 - step as f64 / plan.steps as f64), model, gradients);
            step += 1;
            bar.set(step as f64 / plan.steps as f64);
            if step == plan.steps {
                break;
            }
            let over = self.end.is_some_and(|end| Instant::now() >= end);
            let stop = over || self.interrupt.is_noted();
            if stop || saved.elapsed() >= self.checkpoint_every {
                if let Some(kept) = &self.kept {
                    match kept.save(settings, (step, seconds(before)), &model, &optimiser) {
                        // It diverged after the last look at the loss.
                        Err(Error::NonFiniteTensor { .. }) => return Ok((None, seconds(before))),
                        saved => saved?,
                    }
                }
                saved = Instant::now();
            }
            if stop {
                return Err(self.stopped());
            }
        }
        Ok((Some(model), seconds(before)))
    }

    /// The end of a program that was interrupted or has no time left.
    fn stopped(&self) -> Failure {
        let done = format!("stopped after {} of {} fits", self.done, self.all);
        let line = match &self.kept {
            Some(_) => format!("{done}, the next one saved; the same command goes on"),
            None => format!("{done}; with --out DIR they would be kept"),
        };
        match self.interrupt.is_noted() {
            true => self.interrupt.end(line).into(),
            false => Incomplete(line).into(),
        }
    }
}
