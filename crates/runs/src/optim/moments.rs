//! Moments of a checkpoint on the device of the weights.

use burn::optim::{
    Adam, AdamState, AdamW, AdamWState, AdaptiveMomentumState, Optimizer, RecordState, StateSink,
    StateSource, join_path,
};
use burn::store::burn_pack::Scalar;
use burn::tensor::{Device, Tensor, TensorData};

/// Optimisers that keep Adam's moments of every parameter, and nothing else.
pub trait HasMoments: Optimizer {
    /// The state with the given moments.
    fn state<const D: usize>(moments: AdaptiveMomentumState<D>) -> Self::State<D>;

    /// The moments of a state.
    fn moments<const D: usize>(state: Self::State<D>) -> AdaptiveMomentumState<D>;
}

impl HasMoments for Adam {
    fn state<const D: usize>(momentum: AdaptiveMomentumState<D>) -> AdamState<D> {
        AdamState { momentum }
    }

    fn moments<const D: usize>(state: AdamState<D>) -> AdaptiveMomentumState<D> {
        state.momentum
    }
}

impl HasMoments for AdamW {
    fn state<const D: usize>(momentum: AdaptiveMomentumState<D>) -> AdamWState<D> {
        AdamWState { momentum }
    }

    fn moments<const D: usize>(state: AdamWState<D>) -> AdaptiveMomentumState<D> {
        state.momentum
    }
}

/// An optimiser whose saved moments become tensors at the first step, on the gradient's device and of its type. Burn makes them on its
/// default device, which may not be there, and of that device's type.
#[derive(Clone)]
pub(super) struct Portable<O>(pub(super) O);

/// The moments of a parameter.
// There is one a parameter: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone)]
pub(super) enum Moments<const D: usize> {
    /// As a checkpoint has them: on no device.
    Saved { time: usize, first: TensorData, second: TensorData, largest: Option<TensorData> },
    /// After a step.
    Made(AdaptiveMomentumState<D>),
}

impl<const D: usize> Moments<D> {
    /// The moments on the device of a gradient and of its type.
    fn beside(self, grad: &Tensor<D>) -> AdaptiveMomentumState<D> {
        let made = |data: TensorData| Tensor::<D>::from_data(data, (&grad.device(), grad.dtype()));
        match self {
            Self::Made(state) => state,
            Self::Saved { time, first, second, largest } => AdaptiveMomentumState {
                time,
                moment_1: made(first),
                moment_2: made(second),
                max_moment_2: largest.map(made),
            },
        }
    }
}

/// Where Burn has them in the state of an optimiser.
fn place(prefix: &str) -> String {
    join_path(prefix, "momentum")
}

/// The names are those of Burn's [`AdaptiveMomentumState`].
impl<const D: usize> RecordState for Moments<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        let place = place(prefix);
        match self {
            Self::Made(state) => state.state_flatten(&place, out),
            Self::Saved { time, first, second, largest } => {
                out.push_scalar(&place, "time", Scalar::from(*time));
                out.push_tensor(&place, "moment_1", first.clone());
                out.push_tensor(&place, "moment_2", second.clone());
                if let Some(largest) = largest {
                    out.push_tensor(&place, "max_moment_2", largest.clone());
                }
            }
        }
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, _device: &Device) -> Option<Self> {
        let place = place(prefix);
        Some(Self::Saved {
            time: usize::try_from(source.take_scalar(&place, "time")?).ok()?,
            first: source.take_tensor(&place, "moment_1")?,
            second: source.take_tensor(&place, "moment_2")?,
            largest: source.take_tensor(&place, "max_moment_2"),
        })
    }
}

impl<O: HasMoments> Optimizer for Portable<O> {
    type State<const D: usize> = Moments<D>;

    fn step<const D: usize>(
        &self,
        lr: f64,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Moments<D>>,
    ) -> (Tensor<D>, Option<Moments<D>>) {
        let state = state.map(|state| O::state::<D>(state.beside(&grad)));
        let (tensor, state) = self.0.step(lr, tensor, grad, state);
        (tensor, state.map(|state| Moments::Made(O::moments::<D>(state))))
    }

    fn to_device<const D: usize>(state: Moments<D>, device: &Device) -> Moments<D> {
        match state {
            Moments::Made(state) => Moments::Made(state.to_device(device)),
            saved => saved,
        }
    }
}
