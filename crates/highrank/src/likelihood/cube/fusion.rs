//! The likelihood as one operation of Burn's fusion, run on the backend below.

use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use crate::autodiff::{unwrap, wrap};
use crate::context::ContextSource;
use crate::context::latent::{LatentArgs, LatentGradients, LatentMask, LatentWanted};
use crate::gpu::fused::{Inputs, Taken, operation};
use crate::likelihood::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted};
use crate::logit_map::MapFunction;
use crate::precision::Precision;

impl<B: FusionBackend + LikelihoodBackend> LikelihoodBackend for Fusion<B> {
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        let outputs = [(Shape::new([input.tokens()]), input.weight.dtype())];
        let (form, inputs) = Form::gather(input, targets);
        let run = move |taken: &mut Taken<'_, B>| {
            let (input, targets) = form.rebuild(taken);
            vec![unwrap(B::nll(input, targets))]
        };
        let mut made = operation("highrank_nll", inputs, &outputs, run);
        wrap(made.remove(0))
    }

    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        let shapes = gradient_shapes(&input, wanted);
        let dtype = input.weight.dtype();
        let mut outputs = vec![(Shape::new([input.tokens()]), dtype)];
        outputs.extend(shapes.iter().flatten().map(|shape| (shape.clone(), dtype)));
        let (form, mut inputs) = Form::gather(input, targets);
        inputs.float(upstream);
        let run = move |taken: &mut Taken<'_, B>| {
            let (input, targets) = form.rebuild(taken);
            let (nll, gradients) = B::nll_and_gradients(input, targets, taken.float(), wanted);
            let Gradients { contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params } =
                gradients;
            let gradients = [
                contexts.map(unwrap),
                latent_weight.map(unwrap),
                latent_bias.map(unwrap),
                log_prior.map(unwrap),
                weight.map(unwrap),
                bias.map(unwrap),
                map_params.map(unwrap),
            ];
            std::iter::once(unwrap(nll)).chain(gradients.into_iter().flatten()).collect()
        };
        let mut made = operation("highrank_nll_and_gradients", inputs, &outputs, run).into_iter();
        let nll = wrap(made.next().expect("the cross-entropies"));
        let mut next = |shape: &Option<Shape>| shape.as_ref().and_then(|_| made.next());
        let [contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params] = &shapes;
        let gradients = Gradients {
            contexts: next(contexts).map(wrap),
            latent_weight: next(latent_weight).map(wrap),
            latent_bias: next(latent_bias).map(wrap),
            log_prior: next(log_prior).map(wrap),
            weight: next(weight).map(wrap),
            bias: next(bias).map(wrap),
            map_params: next(map_params).map(wrap),
        };
        (nll, gradients)
    }

    fn product(lhs: Tensor<Self, 2>, rhs: Tensor<Self, 2>, precision: Precision) -> Tensor<Self, 2> {
        let outputs = [(Shape::new([lhs.dims()[0], rhs.dims()[1]]), lhs.dtype())];
        let mut inputs = Inputs::new();
        inputs.float(lhs);
        inputs.float(rhs);
        let run = move |taken: &mut Taken<'_, B>| {
            let lhs = taken.float();
            vec![unwrap(B::product(lhs, taken.float(), precision))]
        };
        wrap(operation("highrank_product", inputs, &outputs, run).remove(0))
    }

    fn memory_budget(decoder_bytes: usize, device: &Self::Device) -> usize {
        B::memory_budget(decoder_bytes, device)
    }

    fn latent(args: LatentArgs<Self>) -> Tensor<Self, 2> {
        let outputs = [(Shape::new([args.hidden.dims()[0], args.weight.dims()[1]]), args.hidden.dtype())];
        let mut inputs = Inputs::new();
        let form = LatentForm::gather(args, &mut inputs);
        let run = move |taken: &mut Taken<'_, B>| vec![unwrap(B::latent(form.rebuild(taken)))];
        wrap(operation("highrank_latent", inputs, &outputs, run).remove(0))
    }

    fn latent_backward(
        args: LatentArgs<Self>,
        output: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
        wanted: LatentWanted,
    ) -> LatentGradients<Self> {
        let dtype = output.dtype();
        let shapes = [
            wanted.hidden.then(|| args.hidden.shape()),
            wanted.weight.then(|| args.weight.shape()),
            args.bias.as_ref().filter(|_| wanted.bias).map(|bias| bias.shape()),
        ];
        let outputs: Vec<_> = shapes.iter().flatten().map(|shape| (shape.clone(), dtype)).collect();
        let mut inputs = Inputs::new();
        let form = LatentForm::gather(args, &mut inputs);
        inputs.float(output);
        inputs.float(grad);
        let run = move |taken: &mut Taken<'_, B>| {
            let args = form.rebuild(taken);
            let output = taken.float();
            let LatentGradients { hidden, weight, bias } =
                B::latent_backward(args, output, taken.float(), wanted);
            [hidden.map(unwrap), weight.map(unwrap), bias.map(unwrap)].into_iter().flatten().collect()
        };
        let mut made = operation("highrank_latent_backward", inputs, &outputs, run).into_iter();
        let [hidden, weight, bias] = shapes.map(|shape| shape.and_then(|_| made.next()));
        LatentGradients { hidden: hidden.map(wrap), weight: weight.map(wrap), bias: bias.map(wrap) }
    }
}

/// Shapes of the gradients that a call will make, in the order of [`Gradients`].
fn gradient_shapes<B: Backend>(input: &Likelihood<B>, wanted: Wanted) -> [Option<Shape>; 7] {
    let (contexts, latent) = match &input.contexts {
        ContextSource::Given(contexts) => (contexts.shape(), None),
        ContextSource::Latent(args) => (args.hidden.shape(), Some(args)),
    };
    let latent_bias = latent.and_then(|args| args.bias.as_ref());
    [
        wanted.contexts.then_some(contexts),
        latent.filter(|_| wanted.latent_weight).map(|args| args.weight.shape()),
        latent_bias.filter(|_| wanted.latent_bias).map(|bias| bias.shape()),
        input.log_prior.as_ref().filter(|_| wanted.log_prior).map(|prior| prior.shape()),
        wanted.weight.then(|| input.weight.shape()),
        input.bias.as_ref().filter(|_| wanted.bias).map(|bias| bias.shape()),
        input.map_params.as_ref().filter(|_| wanted.map_params).map(|params| params.shape()),
    ]
}

/// What a likelihood and its targets are made of, besides tensors.
#[derive(Clone, Copy)]
struct Form {
    /// The layer that makes the contexts, if they are not given.
    latent: Option<LatentForm>,
    log_prior: bool,
    bias: bool,
    map: MapFunction,
    map_params: bool,
    chunk_bytes: usize,
    precision: Precision,
    words: bool,
}

#[derive(Clone, Copy)]
struct LatentForm {
    bias: bool,
    /// Where the mask's first token stands, and its probability of keeping.
    mask: Option<(usize, f64)>,
    precision: Precision,
}

impl LatentForm {
    /// The form; the tensors go in the order in which [`rebuild`](Self::rebuild) takes them.
    fn gather<B: FusionBackend>(args: LatentArgs<Fusion<B>>, inputs: &mut Inputs<B>) -> Self {
        let LatentArgs { hidden, weight, bias, mask, precision } = args;
        let form =
            Self { bias: bias.is_some(), mask: mask.as_ref().map(|mask| (mask.first, mask.keep)), precision };
        inputs.float(hidden);
        inputs.float(weight);
        bias.into_iter().for_each(|bias| inputs.float(bias));
        mask.into_iter().for_each(|mask| inputs.float(mask.values));
        form
    }

    fn rebuild<B: FusionBackend>(self, taken: &mut Taken<'_, B>) -> LatentArgs<B> {
        LatentArgs {
            hidden: taken.float(),
            weight: taken.float(),
            bias: self.bias.then(|| taken.float()),
            mask: self.mask.map(|(first, keep)| LatentMask { values: taken.float(), first, keep }),
            precision: self.precision,
        }
    }
}

impl Form {
    /// The form, and the tensors in the order in which [`rebuild`](Self::rebuild) takes them.
    fn gather<B: FusionBackend>(
        input: Likelihood<Fusion<B>>,
        targets: Targets<Fusion<B>>,
    ) -> (Self, Inputs<B>) {
        let mut inputs = Inputs::new();
        let latent = match input.contexts {
            ContextSource::Given(contexts) => {
                inputs.float(contexts);
                None
            }
            ContextSource::Latent(args) => Some(LatentForm::gather(args, &mut inputs)),
        };
        let form = Self {
            latent,
            log_prior: input.log_prior.is_some(),
            bias: input.bias.is_some(),
            map: input.map,
            map_params: input.map_params.is_some(),
            chunk_bytes: input.chunk_bytes,
            precision: input.precision,
            words: matches!(targets, Targets::Words(_)),
        };
        input.log_prior.into_iter().for_each(|prior| inputs.float(prior));
        inputs.float(input.weight);
        input.bias.into_iter().for_each(|bias| inputs.float(bias));
        input.map_params.into_iter().for_each(|params| inputs.float(params));
        match targets {
            Targets::Words(words) => inputs.int(words),
            Targets::Distributions(rows) => inputs.float(rows),
        }
        (form, inputs)
    }

    fn rebuild<B: FusionBackend>(&self, taken: &mut Taken<'_, B>) -> (Likelihood<B>, Targets<B>) {
        let contexts = match self.latent {
            None => ContextSource::Given(taken.float()),
            Some(form) => ContextSource::Latent(form.rebuild(taken)),
        };
        let input = Likelihood {
            contexts,
            log_prior: self.log_prior.then(|| taken.float()),
            weight: taken.float(),
            bias: self.bias.then(|| taken.float()),
            map: self.map,
            map_params: self.map_params.then(|| taken.float()),
            chunk_bytes: self.chunk_bytes,
            precision: self.precision,
        };
        let targets = match self.words {
            true => Targets::Words(taken.int()),
            false => Targets::Distributions(taken.float()),
        };
        (input, targets)
    }
}
