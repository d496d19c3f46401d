//! The kernels as operations of Burn's fusion, run on the backend below.

use burn::tensor::{DType, Shape};
use highrank_kernels::gpu::fused::{Fusion, FusionBackend, Inputs, Taken, operation};
use highrank_kernels::precision::product_dtype;
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::{LikelihoodKernels, OutputOps};
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, LikelihoodInput, Objective, Scores,
    Statistic, Wanted, wide,
};

impl<B: FusionBackend + LikelihoodKernels> OutputOps for Fusion<B> {}

// The mixed context is left to the portable body: composed, its few operations fuse into one kernel.
impl<B: FusionBackend + Kernels> Kernels for Fusion<B> {
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        let ([m, _], [_, n]) = (lhs.dims(), rhs.dims());
        let dtype = product_dtype(lhs.dtype(), rhs.dtype());
        let inputs = Inputs::<B>::default();
        let [lhs, rhs] = [lhs, rhs].map(|tensor| inputs.float(tensor));
        let run = move |taken: &Taken<B>| {
            let lhs = taken.float(lhs);
            vec![B::product(lhs, taken.float(rhs), precision)]
        };
        operation("highrank_product", inputs, &[(Shape::new([m, n]), dtype)], run).remove(0)
    }

    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        let ([tokens, _], [_, features]) = (args.hidden.dims(), args.weight.dims());
        let outputs = [(Shape::new([tokens, features]), wide(args.weight.dtype()))];
        let inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let run = move |taken: &Taken<B>| vec![B::latent(args.clone().map(|slot| taken.float(slot)))];
        operation("highrank_latent", inputs, &outputs, run).remove(0)
    }

    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        let dtype = wide(args.weight.dtype());
        let shapes = args.inputs().zip(wanted).map(shape_if_wanted);
        let outputs = of_type(shapes.clone().into_array(), dtype);
        let inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let [output, grad] = [output, grad].map(|tensor| inputs.float(tensor));
        let run = move |taken: &Taken<B>| {
            let args = args.clone().map(|slot| taken.float(slot));
            let output = taken.float(output);
            let gradients = B::latent_backward(args, output, taken.float(grad), wanted);
            gradients.into_array().into_iter().flatten().collect()
        };
        let mut made = operation("highrank_latent_backward", inputs, &outputs, run).into_iter();
        shapes.map(|shape| shape.and_then(|_| made.next()))
    }
}

impl<B: FusionBackend + LikelihoodKernels> LikelihoodKernels for Fusion<B> {
    fn score(
        input: LikelihoodInput<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        gradient: Option<(Floats<Self>, Wanted)>,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        let dtype = input.wide();
        let wanted = gradient.as_ref().map(|(_, wanted)| *wanted).unwrap_or_default();
        let shapes = input.inputs().zip(wanted).map(shape_if_wanted);
        let mut outputs = scores(&input, &objective);
        outputs.extend(of_type(shapes.clone().into_array(), dtype));
        let parts = objective.parts();
        let inputs = Inputs::<B>::default();
        let input = input.map(|tensor| inputs.float(tensor));
        let objective = objective.map(|x| inputs.float(x), |x| inputs.int(x));
        let upstream = gradient.map(|(upstream, _)| inputs.float(upstream));
        let run = move |taken: &Taken<B>| {
            let input = input.clone().map(|slot| taken.float(slot));
            let objective = objective.clone().map(|slot| taken.float(slot), |slot| taken.int(slot));
            let gradient = upstream.map(|upstream| (taken.float(upstream), wanted));
            let (scores, gradients) = B::score(input, objective, gradient);
            scores.into_parts().into_iter().chain(gradients.into_array().into_iter().flatten()).collect()
        };
        let mut made = operation("highrank_score", inputs, &outputs, run).into_iter();
        let scores = Scores::from_parts(&mut made, parts);
        (scores, shapes.map(|shape| shape.and_then(|_| made.next())))
    }
}

/// The shape of the gradient that a call will make of an input, if any.
fn shape_if_wanted<B: FusionBackend>((input, wanted): (Option<&Floats<Fusion<B>>>, bool)) -> Option<Shape> {
    input.filter(|_| wanted).map(Floats::shape)
}

/// The shapes that are there, with a type.
fn of_type<const N: usize>(shapes: [Option<Shape>; N], dtype: DType) -> Vec<(Shape, DType)> {
    shapes.into_iter().flatten().map(|shape| (shape, dtype)).collect()
}

/// Shapes and types of the scores that a call will make.
fn scores<B: FusionBackend>(
    input: &LikelihoodInput<Floats<Fusion<B>>>,
    objective: &Objective<Floats<Fusion<B>>, Ints<Fusion<B>>>,
) -> Vec<(Shape, DType)> {
    let (tokens, dtype) = (input.tokens(), input.wide());
    let statistics = objective.statistics.then(|| (Shape::new([tokens, Statistic::COUNT]), dtype));
    let [_, is_listed] = objective.parts();
    let listed = is_listed.then(|| (Shape::new([tokens, objective.listed_columns()]), dtype));
    std::iter::once((Shape::new([tokens]), dtype)).chain(statistics).chain(listed).collect()
}
