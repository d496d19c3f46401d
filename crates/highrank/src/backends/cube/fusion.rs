//! The kernels as operations of Burn's fusion, run on the backend below.

use std::array::from_fn;

use burn::backend::tensor::Device;
use burn::tensor::{DType, Shape};
use highrank_kernels::gpu::fused::{FloatSlot, Fusion, FusionBackend, Inputs, IntSlot, Taken, operation};
use highrank_kernels::{Floats, Ints, Precision};

use crate::backends::dispatched::dispatch_to_kernels;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Targets, Wanted,
};

dispatch_to_kernels!(Fusion<B> where B: FusionBackend + Kernels);

impl<B: FusionBackend + Kernels> Kernels for Fusion<B> {
    fn nll(input: Likelihood<Floats<Self>>, targets: Targets<Floats<Self>, Ints<Self>>) -> Floats<Self> {
        let outputs = [(Shape::new([input.tokens()]), input.weight.dtype())];
        let mut inputs = Inputs::<B>::default();
        let input = input.map(|tensor| inputs.float(tensor));
        let targets = add(targets, &mut inputs);
        let run = move |taken: &mut Taken<B>| {
            let input = input.clone().map(|slot| taken.float(slot));
            vec![B::nll(input, take(&targets, taken))]
        };
        operation("highrank_nll", inputs, &outputs, run).remove(0)
    }

    fn nll_and_gradients(
        input: Likelihood<Floats<Self>>,
        targets: Targets<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Floats<Self>, Gradients<Floats<Self>>) {
        let dtype = input.weight.dtype();
        let shapes = wanted_shapes(input.inputs().into_array(), wanted.into_array());
        let mut outputs = vec![(Shape::new([input.tokens()]), dtype)];
        outputs.extend(shapes.iter().flatten().map(|shape| (shape.clone(), dtype)));
        let mut inputs = Inputs::<B>::default();
        let input = input.map(|tensor| inputs.float(tensor));
        let targets = add(targets, &mut inputs);
        let upstream = inputs.float(upstream);
        let run = move |taken: &mut Taken<B>| {
            let input = input.clone().map(|slot| taken.float(slot));
            let targets = take(&targets, taken);
            let (nll, gradients) = B::nll_and_gradients(input, targets, taken.float(upstream), wanted);
            std::iter::once(nll).chain(gradients.into_array().into_iter().flatten()).collect()
        };
        let mut made = operation("highrank_nll_and_gradients", inputs, &outputs, run).into_iter();
        let nll = made.next().expect("the cross-entropies");
        (nll, Gradients::from_array(shapes.map(|shape| shape.and_then(|_| made.next()))))
    }

    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        let ([m, _], [_, n]) = (lhs.dims(), rhs.dims());
        let dtype = if rhs.dtype() == DType::F32 { DType::F32 } else { lhs.dtype() };
        let mut inputs = Inputs::<B>::default();
        let [lhs, rhs] = [lhs, rhs].map(|tensor| inputs.float(tensor));
        let run = move |taken: &mut Taken<B>| {
            let lhs = taken.float(lhs);
            vec![B::product(lhs, taken.float(rhs), precision)]
        };
        operation("highrank_product", inputs, &[(Shape::new([m, n]), dtype)], run).remove(0)
    }

    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        let ([tokens, _], [_, features]) = (args.hidden.dims(), args.weight.dims());
        let outputs = [(Shape::new([tokens, features]), args.hidden.dtype())];
        let mut inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let run = move |taken: &mut Taken<B>| vec![B::latent(args.clone().map(|slot| taken.float(slot)))];
        operation("highrank_latent", inputs, &outputs, run).remove(0)
    }

    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        let dtype = output.dtype();
        let shapes = wanted_shapes(args.inputs().into_array(), wanted.into_array());
        let outputs: Vec<_> = shapes.iter().flatten().map(|shape| (shape.clone(), dtype)).collect();
        let mut inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let [output, grad] = [output, grad].map(|tensor| inputs.float(tensor));
        let run = move |taken: &mut Taken<B>| {
            let args = args.clone().map(|slot| taken.float(slot));
            let output = taken.float(output);
            let gradients = B::latent_backward(args, output, taken.float(grad), wanted);
            gradients.into_array().into_iter().flatten().collect()
        };
        let mut made = operation("highrank_latent_backward", inputs, &outputs, run).into_iter();
        LatentGradients::from_array(shapes.map(|shape| shape.and_then(|_| made.next())))
    }

    fn memory_budget(decoder_bytes: usize, device: &Device<Self>) -> usize {
        B::memory_budget(decoder_bytes, device)
    }

    fn is_cpu(device: &Device<Self>) -> bool {
        B::is_cpu(device)
    }
}

/// Shapes of the gradients that a call will make.
fn wanted_shapes<B: FusionBackend, const N: usize>(
    inputs: [Option<&Floats<Fusion<B>>>; N],
    wanted: [bool; N],
) -> [Option<Shape>; N] {
    from_fn(|i| inputs[i].filter(|_| wanted[i]).map(Floats::shape))
}

/// Adds the tensor of the targets to the inputs.
fn add<B: FusionBackend>(
    targets: Targets<Floats<Fusion<B>>, Ints<Fusion<B>>>,
    inputs: &mut Inputs<B>,
) -> Targets<FloatSlot, IntSlot> {
    match targets {
        Targets::Words(words) => Targets::Words(inputs.int(words)),
        Targets::Distributions(rows) => Targets::Distributions(inputs.float(rows)),
    }
}

/// The targets on the backend below.
fn take<B: FusionBackend>(
    targets: &Targets<FloatSlot, IntSlot>,
    taken: &mut Taken<B>,
) -> Targets<Floats<B>, Ints<B>> {
    match *targets {
        Targets::Words(words) => Targets::Words(taken.int(words)),
        Targets::Distributions(rows) => Targets::Distributions(taken.float(rows)),
    }
}
