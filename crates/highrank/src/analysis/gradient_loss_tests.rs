use super::*;
use crate::{HeadConfig, OutputHead, cast_parameters};
use burn::module::Param;
use burn::tensor::{DType, Device, Distribution, TensorData};

/// A head in f64 whose decoder has these rows.
fn with_decoder(config: HeadConfig, weight: &[f64]) -> OutputHead {
    let device = Device::flex();
    let mut head = cast_parameters(config.init(&device), DType::F64);
    let shape = head.decoder.weight.as_ref().unwrap().shape();
    let weight = TensorData::new(weight.to_vec(), shape);
    head.decoder.weight = Some(Param::from_tensor(Tensor::from_data(weight, (&device, DType::F64))));
    head
}

fn hidden(rows: &[f64], width: usize) -> Tensor<2> {
    let data = TensorData::new(rows.to_vec(), [rows.len() / width, width]);
    Tensor::from_data(data, (&Device::flex(), DType::F64))
}

fn targets(words: &[i64]) -> Tensor<1, Int> {
    Tensor::from_data(words, &Device::flex())
}

fn of(head: &OutputHead, hidden: Tensor<2>, words: &[i64]) -> GradientShares {
    let mut loss = GradientLoss::of_head(head).unwrap();
    loss.add(head, hidden, targets(words)).unwrap();
    loss.finish().unwrap()
}

fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-12, "{got} against {want}");
}

#[test]
fn a_case_worked_out_by_hand() {
    // p is uniform at h = 0, so G = (−2/3, 1/3, 1/3), and after W = (1, 0, 0) only its first entry is left.
    let head = with_decoder(HeadConfig::softmax(1, 3), &[1.0, 0.0, 0.0]);
    let loss = of(&head, hidden(&[0.0], 1), &[0]);
    close(loss.mean_squared_share, 1.0 / 3.0);
    close(loss.mean_share, (1f64 / 3.0).sqrt());
    close(loss.by_chance, 2.0 / 3.0);

    // With another target, G = (1/3, −2/3, 1/3) loses 5/6. Tokens together: (2/9 + 5/9) / (6/9 + 6/9). The sum is (−1, −1, 2)/3.
    let loss = of(&head, hidden(&[0.0, 0.0], 1), &[0, 1]);
    close(loss.mean_squared_share, (1.0 / 3.0 + 5.0 / 6.0) / 2.0);
    close(loss.total_squared_share, 7.0 / 12.0);
    close(loss.share_of_sum.unwrap(), (5f64 / 6.0).sqrt());
    assert_eq!((loss.rows, loss.without_gradient, loss.shares.len(), loss.dimension), (2, 0, 2, 1));
}

#[test]
fn a_map_and_a_prior_change_the_gradient_before_it_is_projected() {
    // Sigsoftmax at h = 1, W = (1, 0, −1): f'(z) = 2 − σ(z) and p ∝ e^z σ(z).
    let head = with_decoder(HeadConfig::sigsoftmax(1, 3), &[1.0, 0.0, -1.0]);
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    let z = [1.0f64, 0.0, -1.0];
    let mass: Vec<f64> = z.iter().map(|z| z.exp() * sigmoid(*z)).collect();
    let total: f64 = mass.iter().sum();
    let onehot = [0.0, 1.0, 0.0];
    let g: Vec<f64> = (0..3).map(|v| (2.0 - sigmoid(z[v])) * (mass[v] / total - onehot[v])).collect();
    let whole: f64 = g.iter().map(|g| g * g).sum();
    let inside = (g[0] - g[2]).powi(2) / 2.0;
    close(of(&head, hidden(&[1.0], 1), &[1]).mean_squared_share, 1.0 - inside / whole);

    // Components that agree have gradients in proportion to their priors, which leaves the share that of one.
    let weight = [1.0, -1.0, 0.5, 2.0];
    let mut mixture = with_decoder(HeadConfig::mos(1, 1, 4, 2), &weight);
    let crate::context::Context::MixtureOfSoftmaxes(context) = &mut mixture.context else { unreachable!() };
    let device = Device::flex();
    let constant = |values: &[f64]| {
        let data = TensorData::new(values.to_vec(), [1, values.len()]);
        Param::from_tensor(Tensor::from_data(data, (&device, DType::F64)))
    };
    context.latent.weight = constant(&[0.3, 0.3]);
    context.latent.bias = None;
    context.prior.weight = constant(&[1.0, -2.0]);
    let one = with_decoder(HeadConfig::softmax(1, 4), &weight);
    let states = [2.0f64, -0.7, 0.1];
    let latent: Vec<f64> = states.iter().map(|g| (0.3 * g).tanh()).collect();
    let (mixture, one) =
        (of(&mixture, hidden(&states, 1), &[0, 1, 3]), of(&one, hidden(&latent, 1), &[0, 1, 3]));
    for (a, b) in mixture.shares.iter().zip(&one.shares) {
        close(*a, *b);
    }
    // What the sum of all tokens loses is another matter: priors differ from token to token.
    assert!(mixture.share_of_sum.is_some());
}

#[test]
fn a_square_invertible_decoder_loses_nothing() {
    let head = with_decoder(HeadConfig::softmax(3, 3), &[2.0, 1.0, 0.0, -1.0, 3.0, 0.5, 0.0, 1.0, 1.0]);
    let loss = of(&head, hidden(&[0.1, 0.2, 0.3, -1.0, 1.0, 0.0], 3), &[0, 2]);
    assert!(loss.mean_share < 1e-12, "{:?}", loss.shares);
    assert!(loss.share_of_sum.unwrap() < 1e-12);
    assert_eq!((loss.dimension, loss.by_chance), (3, 0.0));
}

#[test]
fn a_decoder_orthogonal_to_the_gradient_loses_all_of_it() {
    // Gradients of a softmax sum to 0, so equal rows get nothing.
    let head = with_decoder(HeadConfig::softmax(1, 4), &[0.7; 4]);
    let loss = of(&head, hidden(&[1.0, -3.0], 1), &[0, 3]);
    assert!(loss.shares.iter().all(|share| (share - 1.0).abs() < 1e-12), "{:?}", loss.shares);
    let zero = with_decoder(HeadConfig::softmax(1, 4), &[0.0; 4]);
    let loss = of(&zero, hidden(&[1.0], 1), &[2]);
    assert_eq!((loss.dimension, loss.mean_share, loss.by_chance), (0, 1.0, 1.0));
}

#[test]
fn blocks_change_nothing_and_every_head_has_its_share() {
    let device = Device::flex();
    device.seed(6);
    let (h, d, v) = (6, 3, 40);
    let heads = crate::head::examples(h, d, v).into_iter();
    for config in heads.filter(|config| !matches!(config.context, crate::ContextConfig::Mixtape(_))) {
        let mut head = cast_parameters(config.init(&device), DType::F64);
        let states = Tensor::<2>::random([9, h], Distribution::Normal(0.0, 1.0), &device).cast(DType::F64);
        let words: Vec<i64> = (0..9).map(|n| (n * 7) % v as i64).collect();
        let whole = of(&head, states.clone(), &words);
        head.memory_budget = Some(1);
        let mut parts = GradientLoss::of_head(&head).unwrap();
        for (start, end) in [(0, 1), (1, 6), (6, 9)] {
            let words = targets(&words[start..end]);
            parts.add(&head, states.clone().slice(start..end), words).unwrap();
        }
        let parts = parts.finish().unwrap();
        assert_eq!((parts.rows, parts.dimension), (9, config.d_embedding), "{config}");
        close(parts.mean_share, whole.mean_share);
        close(parts.total_squared_share, whole.total_squared_share);
        close(parts.share_of_sum.unwrap(), whole.share_of_sum.unwrap());
        let share = whole.mean_share;
        assert!(share > 0.5 && share < 1.0, "{config}: {share}");
    }
}

#[test]
fn masked_words_are_as_if_they_were_not_there() {
    let rows = [[1.0, 0.5], [-0.3, 2.0], [4.0, -4.0], [0.7, 0.1]];
    let all = with_decoder(HeadConfig::softmax(2, 4), rows.as_flattened()).mask_words(&[2]);
    let three = with_decoder(HeadConfig::softmax(2, 3), [rows[0], rows[1], rows[3]].as_flattened());
    let states = hidden(&[0.3, -0.2, 1.0, 2.0], 2);
    let (masked, without) = (of(&all, states.clone(), &[0, 3]), of(&three, states, &[0, 2]));
    close(masked.mean_share, without.mean_share);
    close(masked.by_chance, 1.0 / 3.0);
    close(without.by_chance, 1.0 / 3.0);
}

#[test]
fn tokens_without_a_gradient_are_in_no_mean() {
    let mut loss = GradientLoss::new(&[1.0, 0.0, 0.0], 1, 1).unwrap();
    let error = "too few contexts for a share of the gradient: 0, expected at least 1";
    assert_eq!(loss.finish().unwrap_err().to_string(), error);
    loss.add_gradients(&[0.0, 0.0, 0.0]).unwrap();
    assert_eq!(loss.finish().unwrap_err().to_string(), error);
    loss.add_gradients(&[3.0, 4.0, 0.0, -3.0, -4.0, 0.0]).unwrap();
    let shares = loss.finish().unwrap();
    assert_eq!((shares.rows, shares.without_gradient, shares.mean_share), (3, 1, 0.8));
    assert_eq!(shares.share_of_sum, None);
}

#[test]
fn heads_of_other_logits_are_refused() {
    let device = Device::flex();
    let clusters = HeadConfig::softmax(4, 50).with_adaptive(crate::AdaptiveConfig::for_vocab(50));
    for (config, name) in [(HeadConfig::mixtape(6, 4, 50), "a Mixtape"), (clusters, "a head with clusters")] {
        let error = GradientLoss::of_head(&config.init(&device)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the logits of {name} are no products")), "{error}");
    }
    let [mixture, softmax] =
        [HeadConfig::mos(4, 4, 50, 2), HeadConfig::softmax(4, 50)].map(|config| config.init(&device));
    let mut loss = GradientLoss::of_head(&mixture).unwrap();
    let states = Tensor::<2>::ones([4, 4], &device);
    let error = loss.add(&softmax, states, targets(&[0; 4])).unwrap_err().to_string();
    assert_eq!(error, "components of the head: 1, expected 2");
    assert_eq!(loss.rows, 0);
}

#[test]
fn bad_gradients_are_refused_and_leave_no_trace() {
    let mut loss = GradientLoss::new(&[1.0, 0.0, 0.0], 1, 2).unwrap();
    let error = loss.add_gradients(&[0.0; 9]).unwrap_err().to_string();
    assert_eq!(error, "9 values do not make rows of 6 columns");
    let mut rows = [1.0; 12];
    rows[10] = f64::INFINITY;
    let error = loss.add_gradients(&rows).unwrap_err().to_string();
    assert_eq!(error, "row 1, column 1 of the gradients is inf, but must be finite");
    assert_eq!(loss.rows, 0);

    let wide = HeadConfig::mos(1, 1, 5, 2).init(&Device::flex());
    let error = loss.add(&wide, Tensor::<2>::ones([1, 1], &Device::flex()), targets(&[0]));
    let expected = "columns of the gradient: 5, expected 3";
    assert_eq!(error.unwrap_err().to_string(), expected);
}
