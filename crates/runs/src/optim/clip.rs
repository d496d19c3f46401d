//! Gradient clipping to the norm over all parameters together.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::update;
use crate::error::Result;
use crate::shards::Shards;

/// Keeps the clip coefficient of a zero gradient finite.
const EPSILON: f64 = 1e-6;

/// The Euclidean norm of all gradients of a module taken together, of shape `[1]`, on their device.
/// `None` if no parameter has a gradient.
pub fn global_norm<M: Module>(module: &M, grads: &GradientsParams) -> Option<Tensor<1>> {
    global_norm_among(module, grads, &Shards::default()).expect("one process has nobody to lose")
}

/// The same of a module of which each rank holds some rows: each row counts once, and so does what all ranks have. All ranks call
/// it.
fn global_norm_among<M: Module>(
    module: &M,
    grads: &GradientsParams,
    shards: &Shards,
) -> Result<Option<Tensor<1>>> {
    let mut squares = Squares { grads, shards, sum: None, of_rows: None };
    module.visit(&mut squares);
    let Squares { mut sum, of_rows, .. } = squares;
    if let Some(own) = of_rows {
        let (device, dtype) = (own.device(), own.dtype());
        let of_rows = Tensor::<1>::from_data([shards.sum(own.into_scalar())?], (&device, dtype));
        add(&mut sum, of_rows);
    }
    Ok(sum.map(Tensor::sqrt))
}

fn add(sum: &mut Option<Tensor<1>>, term: Tensor<1>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + term,
        None => term,
    });
}

/// Scales all gradients of a module by `min(1, max_norm / (norm + 1e-6))`, where the norm is taken over all
/// parameters together (a clip of each tensor by itself is a different method).
///
/// The norm stays on the device: nothing waits for its value. Gradients of parameters that are not in `module`
/// are left alone and do not count.
///
/// Returns the gradients, and the norm before clipping, `[1]`; `None` if no parameter has a gradient.
///
/// # Panics
///
/// If `max_norm` is not a positive number.
pub fn clip_global_norm<M: Module>(
    module: &M,
    grads: GradientsParams,
    max_norm: f64,
) -> (GradientsParams, Option<Tensor<1>>) {
    clip_global_norm_among(module, grads, max_norm, &Shards::default())
        .expect("one process has nobody to lose")
}

/// The same of a module of which each rank holds some rows. All ranks call it.
pub(super) fn clip_global_norm_among<M: Module>(
    module: &M,
    mut grads: GradientsParams,
    max_norm: f64,
    shards: &Shards,
) -> Result<(GradientsParams, Option<Tensor<1>>)> {
    let measured = norm_and_coefficient(module, &grads, max_norm, shards)?;
    let norm = measured.map(|(norm, coefficient)| {
        module.visit(&mut Scale { grads: &mut grads, coefficient });
        norm
    });
    Ok((grads, norm))
}

/// The global norm, and what [`clip_global_norm`] multiplies gradients by, both `[1]`. `None` if no parameter has a gradient.
pub(super) fn norm_and_coefficient<M: Module>(
    module: &M,
    grads: &GradientsParams,
    max_norm: f64,
    shards: &Shards,
) -> Result<Option<(Tensor<1>, Tensor<1>)>> {
    assert!(max_norm > 0.0, "clip_global_norm: max_norm is {max_norm}, but must be above 0");
    let norm = global_norm_among(module, grads, shards)?;
    Ok(norm.map(|norm| {
        let coefficient = (norm.clone() + EPSILON).recip().mul_scalar(max_norm).clamp_max(1.0);
        (norm, coefficient)
    }))
}

struct Squares<'a> {
    grads: &'a GradientsParams,
    shards: &'a Shards,
    sum: Option<Tensor<1>>,
    /// Of rows that this rank alone holds.
    of_rows: Option<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.grads.get::<D>(param.id) else { return };
        let sum = if self.shards.hold(param.id) { &mut self.of_rows } else { &mut self.sum };
        add(sum, update::square_sum(grad));
    }
}

struct Scale<'a> {
    grads: &'a mut GradientsParams,
    coefficient: Tensor<1>,
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // Taken out, not borrowed: the only owner of its memory can be scaled in place.
        let Some(grad) = self.grads.remove::<D>(param.id) else { return };
        self.grads.register(param.id, update::scale(grad, self.coefficient.clone()));
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::optim::testing::{self, Pair, pair};

    /// Gradients 2, 3 and 6: their norm together is 7.
    fn grads(module: &Pair) -> GradientsParams {
        testing::grads(module, [2.0, 3.0], 6.0)
    }

    fn values(module: &Pair, grads: &GradientsParams) -> Vec<f32> {
        let weight = grads.get::<2>(module.weight.id).unwrap().into_data();
        let bias = grads.get::<1>(module.bias.id).unwrap().into_data();
        weight.iter::<f32>().chain(bias.iter::<f32>()).collect()
    }

    #[test]
    fn the_norm_is_taken_over_all_parameters_together() {
        let module = pair();
        let norm = global_norm(&module, &grads(&module)).unwrap().into_scalar::<f32>();
        assert!((norm - 7.0).abs() < 1e-6, "{norm}");
        assert!(global_norm(&module, &GradientsParams::new()).is_none());
    }

    #[test]
    fn large_gradients_shrink_to_the_norm_and_small_ones_stay() {
        let module = pair();
        let clipped = values(&module, &clip_global_norm(&module, grads(&module), 3.5).0);
        for (got, want) in clipped.iter().zip([1.0, 1.5, 3.0]) {
            assert!((got - want).abs() < 1e-5, "{clipped:?}");
        }
        let kept = values(&module, &clip_global_norm(&module, grads(&module), 7.1).0);
        assert_eq!(kept, [2.0, 3.0, 6.0]);
    }
}
