//! Derivatives: finite differences, subsets of tracked inputs, tied matrices.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::{HeadConfig, LogitMapConfig, LossOptions, OutputHead, Reduction, TimeAxis};

use crate::support::*;

const VOCAB: usize = 9;
const TOKENS: usize = 4;

/// What is differentiated: the mean nll, every option by itself, and all of them; and the temperature of the head.
fn all_options(device: &Device) -> Vec<(&'static str, LossOptions, f64)> {
    let plain = LossOptions::new();
    let ids = [[3i64, 5, 1], [2, 0, 4], [7, 1, 5], [6, 0, 3]];
    let probs = [[0.5, 0.0, 0.25], [0.5, 0.25, 0.25], [0.125, 0.75, 0.0], [0.25, 0.0, 0.5]];
    let teacher = |options: LossOptions| {
        let ids = Tensor::<2, Int>::from_data(ids, device);
        options.with_teacher(ids, Tensor::from_data(probs, (device, DType::F64)))
    };
    let weights = Tensor::<1>::from_data([0.5, 2.0, 0.0, 1.0], (device, DType::F64));
    let classes = |options: LossOptions| {
        options.with_class_weights(tensor([VOCAB], 11, (device, DType::F64)).add_scalar(1.5))
    };
    // The masked words have nothing.
    let rows = tensor([TOKENS, VOCAB], 12, (device, DType::F64)).add_scalar(1.0);
    let rows = rows.slice_fill([0..TOKENS, 5..6], 0.0).slice_fill([0..TOKENS, 8..9], 0.0);
    let rows = rows.clone() / rows.sum_dim(1);
    let most = |options: LossOptions| teacher(options).with_label_smoothing(0.2).with_z_loss(0.1);
    let some = |options: LossOptions| options.with_ignore_index(2).with_token_weights(weights.clone());
    vec![
        ("nothing", plain.clone(), 1.0),
        ("smoothing", plain.clone().with_label_smoothing(0.2), 1.0),
        ("z-loss", plain.clone().with_z_loss(0.1), 1.0),
        ("temperature", plain.clone(), 1.5),
        ("a teacher", teacher(plain.clone()), 1.0),
        ("distributions", plain.clone().with_distributions(rows), 1.0),
        ("class weights", classes(plain.clone()).with_label_smoothing(0.2), 1.0),
        ("most", most(plain.clone()).with_reduction(Reduction::Sum), 1.5),
        ("most of some tokens", some(most(plain.clone())).with_statistics(true), 1.5),
        ("all, with class weights", some(most(classes(plain))).with_statistics(true), 1.5),
    ]
}

#[test]
fn every_head_and_option_matches_central_differences() {
    let choices = all_options(&cpu());
    for config in every_head(VOCAB) {
        for masked in [false, true] {
            for (i, (name, ..)) in choices.iter().enumerate() {
                if config.adaptive.is_some() && name.ends_with("class weights") {
                    continue;
                }
                let what = format!("{name}, masked {masked}, {config:?}");
                let derivative = check_derivative(&config, TOKENS, &what, |head, hidden, _| {
                    let device = hidden.device();
                    let (_, options, temperature) = &all_options(&device)[i];
                    let head = head.at_temperature(*temperature);
                    let head = if masked { head.mask_words(&[5, 8]) } else { head };
                    head.loss_with(hidden, targets(TOKENS, VOCAB, &device), options).value
                });
                assert!(derivative.abs() > 1e-4, "{what}: the direction shows nothing");
            }
        }
    }
}

/// The gradients of a loss by token weights, hidden states and parameters, in that order.
fn gradients(loss: Tensor<1>, weights: &Tensor<1>, hidden: &Tensor<2>, head: &OutputHead) -> Vec<Gradient> {
    let store = loss.backward();
    let of_inputs = [weights.grad(&store).map(values), hidden.grad(&store).map(values)];
    let of_params = parameters(head, Some(&store)).into_iter();
    let of_params =
        of_params.map(|(_, gradient)| gradient.map(|data| data.iter::<f64>().collect::<Vec<_>>()));
    of_inputs.into_iter().chain(of_params).collect()
}

/// None of an input that is not tracked.
type Gradient = Option<Vec<f64>>;

/// Token weights, hidden states and parameters, each tracked if its bit is set; the gradients that come out of the composed
/// formula, of the mean, and of the nll of tokens; of none of them if nothing is tracked. Latent dropout has a given mask.
fn gradients_of_subset(config: &HeadConfig, tracked: usize) -> [Vec<Gradient>; 3] {
    struct Freeze(usize);
    impl ModuleMapper for Freeze {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let is_tracked = self.0 & 1 == 1;
            self.0 >>= 1;
            param.set_require_grad(is_tracked)
        }
    }
    let on = (&ad(), DType::F64);
    let head = head(config, on).map(&mut Freeze(tracked >> 2));
    let head = match config.context.latent_dropout() {
        Some(_) => {
            let kept = tensor::<2>([3, config.context.components() * EMBEDDING], 9, on).greater_elem(0.0);
            head.with_latent_mask(kept.float().cast(DType::F64) * 2.0)
        }
        None => head,
    };
    let weights = tensor([6], 6, on).add_scalar(1.5).detach().set_require_grad(tracked & 1 == 1);
    let hidden = tensor([6, config.d_hidden], 1, on).detach().set_require_grad(tracked >> 1 & 1 == 1);
    // Two steps of three sequences.
    let state = || hidden.clone().reshape([2, 3, config.d_hidden]);
    let words = || targets(6, VOCAB, on.0).reshape([2, 3]);
    let mean_of = |nll: Tensor<1>| (nll * (weights.clone() / weights.clone().sum())).sum();

    let log_probs = head.forward(state());
    let nll = head.nll(state(), words());
    assert_eq!([log_probs.is_tracked(), nll.is_tracked()], [tracked > 1; 2], "subset {tracked:b}");
    let composed = log_probs.gather(2, words().unsqueeze_dim(2)).neg().reshape([6]);
    let options = LossOptions::new().with_token_weights(weights.clone().reshape([2, 3]));
    let mean = head.loss_with(state(), words(), &options).value;
    [mean_of(composed), mean, mean_of(nll.reshape([6]))].map(|loss| {
        assert_eq!(loss.is_tracked(), tracked > 0, "subset {tracked:b}");
        if tracked > 0 { gradients(loss, &weights, &hidden, &head) } else { vec![] }
    })
}

#[test]
fn every_subset_of_inputs_may_require_gradients() {
    let map = LogitMapConfig::Plif { knots: 6, bound: 1.5 };
    let single = softmax(VOCAB).with_logit_map(map);
    let mixture = mos(VOCAB).with_logit_map(map);
    let in_full = [single, mixture.with_latent_dropout(0.5, TimeAxis::First)].map(|config| (config, true));
    // Of the others, each input alone and all but each.
    let others = all_heads(VOCAB).into_iter().map(|config| (config, false));
    for (config, is_full) in in_full.into_iter().chain(others) {
        // Two tokens a chunk and a block, which the mask's three sequences do not divide.
        let budget = 2 * config.context.components() * VOCAB * size_of::<f64>();
        let config = config.with_memory_budget(Some(budget));
        let [all, ..] = gradients_of_subset(&config, usize::MAX);
        let inputs = all.len();
        let is_chosen =
            |subset: &usize| is_full || [0, 1, inputs - 1, inputs].contains(&(subset.count_ones() as usize));
        for subset in (0..1 << inputs).filter(is_chosen) {
            let made = gradients_of_subset(&config, subset);
            for (name, made) in ["composed", "mean", "nll"].into_iter().zip(made) {
                let what = format!("{name} of subset {subset:b}, {config:?}");
                for (i, (got, want)) in made.iter().zip(&all).enumerate() {
                    match subset >> i & 1 {
                        1 => assert_close(got.as_ref().unwrap(), want.as_ref().unwrap(), 1e-12, &what),
                        _ => assert!(got.is_none(), "{what}: input {i} was not tracked"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_tied_matrix_gets_its_gradient_once_and_whole() {
    let on = (&ad(), DType::F64);
    let config = mos(11);
    let owned = head(&config, on);
    let mut tied = head(&config.clone().with_tied(true), on);
    tied.context = owned.context.clone();
    tied.decoder.bias = owned.decoder.bias.clone();
    let embedding = Param::from_tensor(owned.decoder.weight.as_ref().unwrap().val().detach());

    let hidden = || tensor([6, HIDDEN], 1, on);
    let store = owned.loss(hidden(), targets(6, 11, on.0)).backward();
    let want = values(owned.decoder.weight.as_ref().unwrap().val().grad(&store).unwrap());

    let store = tied.tied_to(&embedding).loss(hidden(), targets(6, 11, on.0)).backward();
    let got = values(embedding.val().grad(&store).unwrap());
    assert_close(&got, &want, 1e-13, "tied decoder");

    // Used as decoder and for something else: both parts add up.
    let loss = tied.tied_to(embedding.val()).loss(hidden(), targets(6, 11, on.0));
    let store = (loss + embedding.val().sum()).backward();
    let got = values(embedding.val().grad(&store).unwrap());
    let want: Vec<f64> = want.iter().map(|g| g + 1.0).collect();
    assert_close(&got, &want, 1e-13, "shared matrix");
}
