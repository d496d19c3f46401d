//! A vocabulary that is shared out over ranks, against the whole head.

use burn::module::Param;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::context::Context;
use highrank::shard::{GroupHandle, ShardError, ShardedHead, on_threads};
use highrank::{
    AdaptiveConfig, HeadConfig, HeadError, LogProbOptions, Loss, LossOptions, OutputHead, Precision,
    Reduction, Sampling, TimeAxis, TokenLogProbs,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::support::*;

pub const VOCAB: usize = 11;
const TOKENS: usize = 7;
const IGNORED: i64 = -100;
pub const RANKS: [usize; 3] = [1, 2, 4];
const TYPES: [(DType, f64); 2] = [(DType::F64, 1e-10), (DType::F32, 1e-5)];

/// Every head whose vocabulary can be shared out.
pub fn heads() -> impl Iterator<Item = HeadConfig> {
    let is_one = |config: &HeadConfig| !matches!(config.init(&cpu()).context, Context::Mixtape(_));
    all_heads(VOCAB).into_iter().filter(is_one)
}

fn hidden(config: &HeadConfig, on: On<'_>) -> Tensor<2> {
    tensor([TOKENS, config.d_hidden], 7, on).require_grad()
}

/// Words of all ranks, some ignored.
fn some_targets(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data([3, IGNORED, 10, 0, 5, 9, IGNORED], device)
}

const CHOICES: usize = 7;

fn choices(on: On<'_>) -> [LossOptions; CHOICES] {
    let ignoring = LossOptions::new().with_ignore_index(IGNORED);
    let weights = tensor::<1>([TOKENS], 3, on).add_scalar(1.2);
    let classes = tensor::<1>([VOCAB], 4, on).add_scalar(1.1);
    let smooth = ignoring.clone().with_label_smoothing(0.2);
    [
        ignoring.clone(),
        ignoring.clone().with_class_weights(classes).with_statistics(true),
        ignoring.clone().with_token_weights(weights.clone()).with_z_loss(0.05).with_reduction(Reduction::Sum),
        smooth.clone().with_statistics(true).with_z_loss(0.05),
        ignoring.clone().with_entropy_bonus(0.3),
        smooth.clone().with_entropy_bonus(-0.2).with_statistics(true).with_per_token(true),
        smooth.with_token_weights(weights).with_per_token(true).with_reduction(Reduction::Divisor(3.0)),
    ]
}

/// Everything that a loss gives, in parts.
fn parts(loss: &Loss<1>) -> Vec<Vec<f64>> {
    let mut parts = vec![values(loss.value.clone())];
    parts.extend([&loss.per_token, &loss.prior_cv].into_iter().flatten().cloned().map(values));
    parts.extend(loss.statistics.clone().into_iter().flat_map(columns));
    parts
}

/// Compares the gradients of a rank with those of the whole head, of which the rank has its rows of the decoder's.
fn check_gradients(
    got: &[Vec<f64>],
    want: &[Vec<f64>],
    (head, whole): (&ShardedHead, &OutputHead),
    tolerance: f64,
    what: &str,
) {
    assert_eq!(got.len(), want.len(), "{what}: parameters");
    let rows = &head.shared.share.rows;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let width = want.len() / whole.decoder.rows();
        let is_whole = got.len() == want.len();
        let want = if is_whole { want } else { &want[rows.start * width..rows.end * width] };
        assert_close(got, want, tolerance, &format!("{what}: gradient {i}"));
    }
}

/// What every rank makes of a head of its own.
pub fn on_ranks<T: Send>(
    ranks: usize,
    whole: &OutputHead,
    work: impl Fn(ShardedHead) -> Result<T, ShardError> + Sync,
) -> Vec<T> {
    let made = on_threads(ranks, |group| work(whole.shard(group)?));
    made.into_iter().map(|made| made.unwrap()).collect()
}

/// Compares a loss with that of the whole head, on numbers of ranks.
fn check_loss(
    (whole, config): (&OutputHead, &HeadConfig),
    on: On<'_>,
    (targets, options): (&Tensor<1, Int>, &LossOptions),
    tolerance: f64,
    what: &str,
) {
    let state = hidden(config, on);
    let want = whole.loss_with(state.clone(), targets.clone(), options);
    let (parts_of_whole, of_whole) = (parts(&want), gradients(whole, &state, want.value));
    for ranks in RANKS {
        let what = format!("{config:?}, {:?}, {what}, {ranks} ranks", on.1);
        let made = on_ranks(ranks, whole, |head| {
            let state = hidden(config, on);
            let loss = head.loss_with(state.clone(), targets.clone(), options)?;
            let made = parts(&loss);
            let got = gradients(&head, &state, loss.value);
            check_gradients(&got, &of_whole, (&head, whole), tolerance, &what);
            Ok(made)
        });
        for (part, (got, want)) in made[0].iter().zip(&parts_of_whole).enumerate() {
            assert_close(got, want, tolerance, &format!("{what}: part {part}"));
        }
        assert_eq!(made[0].len(), parts_of_whole.len());
        // All bits, on all ranks.
        assert!(made.iter().all(|of_rank| *of_rank == made[0]), "{what}: ranks differ");
    }
}

/// Compares the losses of all choices.
fn check_losses(config: &HeadConfig, temperature: f64, (dtype, tolerance): (DType, f64)) {
    let on = (&ad(), dtype);
    let whole = head(config, on).at_temperature(temperature);
    let targets = some_targets(on.0);
    for (choice, options) in choices(on).iter().enumerate() {
        check_loss((&whole, config), on, (&targets, options), tolerance, &format!("options {choice}"));
    }
}

#[test]
fn every_head_has_the_losses_and_gradients_of_the_whole() {
    for config in heads() {
        for precision in TYPES {
            check_losses(&config, 1.0, precision);
        }
    }
}

#[test]
fn parameters_in_half_precision_and_rounded_products_do() {
    for dtype in [DType::BF16, DType::F16] {
        for config in [softmax(VOCAB), mos_plif(VOCAB)] {
            check_losses(&config, 1.0, (dtype, 2e-2));
        }
    }
    let config = mos(VOCAB).with_precision(Precision::Bf16);
    check_losses(&config, 1.0, (DType::F32, 2e-2));
}

/// Where logits are large, most digits of a normaliser are those of the largest.
#[test]
fn log_probabilities_near_zero_keep_their_digits() {
    let device = ad();
    for config in [softmax(VOCAB), mos(VOCAB)] {
        let large = |dtype| {
            let mut head = head(&config, (&device, dtype));
            let weight = head.decoder.weight.unwrap().val().detach() * 1000.0;
            head.decoder.weight = Some(Param::from_tensor(weight.detach()));
            head
        };
        let state = |dtype| tensor::<2>([TOKENS, config.d_hidden], 7, (&device, dtype));
        let options = || LossOptions::new().with_per_token(true).with_statistics(true);
        let likeliest = large(DType::F64).top_k(state(DType::F64), 1).words.reshape([TOKENS]);
        let want = large(DType::F64).loss_with(state(DType::F64), likeliest.clone(), &options());
        let (want, entropy) = (values(want.per_token.unwrap()), values(want.statistics.unwrap().entropy));
        on_ranks(4, &large(DType::F32), |head| {
            let loss = head.loss_with(state(DType::F32), likeliest.clone(), &options())?;
            for (got, want) in [
                (values(loss.per_token.unwrap()), &want),
                (values(loss.statistics.unwrap().entropy), &entropy),
            ] {
                for (got, want) in got.iter().zip(want) {
                    // The logits themselves are rounded to a ten thousandth.
                    assert!((got - want).abs() <= 1e-7 + 2e-3 * want, "{config:?}: {got:e}, {want:e}");
                }
            }
            Ok(())
        });
    }
}

#[test]
fn so_it_has_at_a_temperature_and_without_a_bias() {
    for config in [HeadConfig::plif(EMBEDDING, VOCAB, 17).with_bias(false), mos(VOCAB).with_bias(false)] {
        check_losses(&config, 1.3, TYPES[0]);
    }
}

/// Some ranks have nothing but padding, or no word that is not masked.
#[test]
fn masked_words_and_padding_take_part_in_nothing() {
    let on = (&ad(), DType::F64);
    for config in [softmax(VOCAB), mos_plif(VOCAB), moc(VOCAB).with_bias(false)] {
        // Of 16 rows a fourth are words 8 to 10 and a row of padding, the last fourth is padding.
        let config = config.with_vocab_multiple(16).with_masked_words(vec![1, 4, 5, 6, 7]);
        let whole = head(&config, on);
        let targets = ints(&[3, 0, 10, 8, 9, 2, 0], [TOKENS], on.0);
        for options in [
            LossOptions::new(),
            LossOptions::new().with_label_smoothing(0.2).with_statistics(true).with_z_loss(0.1),
            LossOptions::new().with_entropy_bonus(0.3),
        ] {
            check_loss((&whole, &config), on, (&targets, &options), 1e-10, "masked words");
        }
        // A masked target, and tokens of which none counts.
        let masked = ints(&[4; TOKENS], [TOKENS], on.0);
        let none = LossOptions::new().with_ignore_index(4);
        on_ranks(4, &whole, |head| {
            assert_eq!(head.loss(hidden(&config, on), masked.clone())?.into_scalar::<f64>(), f64::INFINITY);
            let state = hidden(&config, on);
            let made = head.loss_with(state.clone(), masked.clone(), &none)?;
            assert!(made.value.clone().into_scalar::<f64>().is_nan());
            let gradients = gradients(&head, &state, made.value);
            assert!(gradients.iter().flatten().all(|x| *x == 0.0), "{gradients:?}");
            Ok(())
        });
    }
}

#[test]
fn where_all_words_are_masked_it_says_what_the_whole_says() {
    for (dtype, tolerance) in TYPES {
        let on = (&ad(), dtype);
        for config in [softmax(VOCAB), mos(VOCAB)] {
            let whole = mask_by_bias(head(&config, on), &(0..VOCAB).collect::<Vec<_>>());
            let targets = targets(TOKENS, VOCAB, on.0);
            let plain = LossOptions::new().with_per_token(true).with_statistics(true);
            for options in [plain.clone(), plain.with_label_smoothing(0.2).with_z_loss(0.1)] {
                check_loss((&whole, &config), on, (&targets, &options), tolerance, "no word is left");
            }
            for temperature in [0.0, 0.7, 1.0] {
                let sampling = Sampling::new().with_temperature(temperature);
                let rng = || Pcg64::seed_from_u64(1);
                let drawn = whole.sample::<2, 1>(hidden(&config, on), &sampling, &mut rng());
                let error = ShardError::from(drawn.unwrap_err());
                for ranks in RANKS {
                    on_ranks(ranks, &whole, |head| {
                        let drawn = head.sample::<2, 1>(hidden(&config, on), &sampling, &mut rng());
                        assert_eq!(drawn.unwrap_err(), error, "{config:?}, {temperature}, {ranks} ranks");
                        Ok(())
                    });
                }
            }
        }
    }
}

#[test]
fn words_of_a_narrow_type_are_found_on_their_rank() {
    let device = ad();
    let on = (&device, DType::F64);
    let (whole, state) = (head(&softmax(300), on), || tensor::<2>([3, EMBEDDING], 1, on));
    let words = |dtype| ints(&[3, 200, 255], [3, 1], &device).cast(dtype);
    let plain = LogProbOptions::default();
    let want = values(whole.token_log_probs(state(), words(DType::I32), &plain).log_probs);
    on_ranks(2, &whole, |head| {
        let got = head.token_log_probs(state(), words(DType::U8), &plain)?.log_probs;
        assert_close(&values(got), &want, 1e-10, "log-probabilities");
        Ok(())
    });
}

/// With options nothing is asked of the first token, nor in some places of others.
#[test]
fn log_probabilities_and_entropies_of_words_are_differentiable() {
    let asked = LogProbOptions { ignored: vec![0, 5, 10], entropy: true };
    for (dtype, tolerance) in TYPES {
        for (config, options) in
            heads().flat_map(|c| [(c.clone(), LogProbOptions::default()), (c, asked.clone())])
        {
            let (device, what) = (ad(), format!("{config:?}, {dtype:?}, {options:?}"));
            let on = (&device, dtype);
            let words: Vec<i64> = (0..3 * TOKENS as i64).map(|i| 5 * i % VOCAB as i64).collect();
            let words = || ints(&words, [TOKENS, 3], &device);
            let made = |made: TokenLogProbs<2>| {
                let all =
                    Tensor::cat([Some(made.log_probs), made.entropy].into_iter().flatten().collect(), 1);
                (values(all.clone()), (all.clone() * tensor(all.dims(), 9, on)).sum())
            };
            let (whole, state) = (head(&config, on), hidden(&config, on));
            let (want, loss) = made(whole.token_log_probs(state.clone(), words(), &options));
            let of_whole = gradients(&whole, &state, loss);
            for ranks in RANKS {
                on_ranks(ranks, &whole, |head| {
                    let state = hidden(&config, on);
                    let (got, loss) = made(head.token_log_probs(state.clone(), words(), &options)?);
                    assert_close(&got, &want, tolerance, &what);
                    let got = gradients(&head, &state, loss);
                    check_gradients(&got, &of_whole, (&head, &whole), tolerance, &what);
                    Ok(())
                });
            }
        }
    }
}

#[test]
fn words_may_be_of_any_integer_type() {
    let on = (&ad(), DType::F64);
    for config in [softmax(VOCAB), mos(VOCAB).with_bias(false)] {
        let whole = head(&config, on);
        on_ranks(2, &whole, |head| {
            let loss = |dtype: DType| {
                let words = some_targets(on.0).cast(dtype);
                let options = LossOptions::new().with_ignore_index(IGNORED);
                Ok::<_, ShardError>(values(head.loss_with(hidden(&config, on), words, &options)?.value))
            };
            assert_eq!(loss(DType::I32)?, loss(DType::I64)?, "{config:?}");
            Ok(())
        });
    }
}

#[test]
fn a_tied_head_and_its_embedding_share_their_rows() {
    let (device, dtype) = (ad(), DType::F64);
    let on = (&device, dtype);
    let config = HeadConfig::mos(EMBEDDING, EMBEDDING, VOCAB, 3).with_tied(true);
    let whole = head(&config, on);
    let embedding = || {
        let mut embedding: Embedding = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&device);
        embedding.weight = Param::from_tensor(tensor([VOCAB, EMBEDDING], 77, on));
        embedding
    };
    let inputs = || Tensor::<2, Int>::from_data([[3, 0, 10, 5, 5, 9, 1]], &device);
    let of_whole = embedding();
    let state = of_whole.forward(inputs()).reshape([TOKENS, EMBEDDING]);
    let loss = whole.tied_to(&of_whole).loss(state, targets(TOKENS, VOCAB, &device));
    let want = (loss.clone().into_scalar::<f64>(), values(of_whole.weight.grad(&loss.backward()).unwrap()));
    for ranks in RANKS {
        on_ranks(ranks, &whole, |head| {
            let share = head.shared.share.clone();
            let rows = share.rows.clone();
            let part = Param::from_tensor(embedding().weight.val().slice_dim(0, rows.clone()).detach());
            let state = share.lookup::<2, 3>(part.val(), inputs())?.reshape([TOKENS, EMBEDDING]);
            let head = ShardedHead { head: head.head.tied_to(&part), ..head };
            let loss = head.loss(state, targets(TOKENS, VOCAB, &device))?;
            assert_close(&[loss.clone().into_scalar::<f64>()], &[want.0], 1e-12, "loss");
            let got = values(part.grad(&loss.backward()).unwrap());
            assert_close(&got, &want.1[rows.start * EMBEDDING..rows.end * EMBEDDING], 1e-12, "rows");
            Ok(())
        });
    }
}

#[test]
fn all_ranks_drop_the_same_latent_features() {
    for device in [ad(), ad().gradient_checkpointing()] {
        let on = (&device, DType::F32);
        let config = mos(VOCAB).with_latent_dropout(0.5, TimeAxis::First);
        let whole = head(&config, on);
        let made = on_ranks(4, &whole, |head| {
            let state = tensor([1, TOKENS, HIDDEN], 7, on);
            let targets = targets(TOKENS, VOCAB, on.0).reshape([1, TOKENS]);
            Ok(head.loss(state, targets)?.into_scalar::<f32>())
        });
        assert!(made.iter().all(|loss| loss.to_bits() == made[0].to_bits()), "{made:?}");
    }
}

#[test]
fn contexts_may_have_fewer_digits_than_the_decoder() {
    let on = (&ad(), DType::F32);
    let config = mos(VOCAB);
    let mut whole = head(&config, on);
    whole.decoder = highrank::cast_parameters(whole.decoder, DType::F64);
    for options in choices(on) {
        check_loss((&whole, &config), on, (&some_targets(on.0), &options), 1e-5, "an f64 decoder");
    }
}

#[test]
fn the_variation_of_priors_is_part_of_the_loss() {
    let on = (&ad(), DType::F64);
    let config = mos(VOCAB);
    let options = LossOptions::new().with_ignore_index(IGNORED).with_prior_cv(0.5);
    let whole = head(&config, on);
    // Its value is one of the parts.
    assert!(whole.loss_with(hidden(&config, on), some_targets(on.0), &options).prior_cv.is_some());
    check_loss((&whole, &config), on, (&some_targets(on.0), &options), 1e-12, "variation");
}

#[test]
fn the_whole_head_comes_back_and_goes_to_any_number_of_ranks() {
    let device = ad();
    for config in
        [mos_plif(VOCAB).with_vocab_multiple(8).with_masked_words(vec![3]), softmax(VOCAB).with_bias(false)]
    {
        let whole = head(&config, (&device, DType::F32));
        let all = |head: &OutputHead| {
            let numbers: Vec<f64> =
                parameters(head, None).iter().flat_map(|(value, _)| value.iter::<f64>()).collect();
            (numbers, head.masked_words().to_vec(), head.decoder.rows())
        };
        let want = all(&whole);
        for ranks in [1, 3, 4] {
            let made = on_ranks(ranks, &whole, |head| Ok(all(&head.whole()?)));
            assert!(made.iter().all(|made| *made == want));
        }
    }
}

/// What all ranks say of work that none can do.
fn refusal(
    config: &HeadConfig,
    ranks: usize,
    work: impl Fn(GroupHandle) -> Result<(), ShardError> + Sync,
) -> String {
    let made = on_threads(ranks, work);
    let said: Vec<String> = made.into_iter().map(|made| made.unwrap_err().to_string()).collect();
    assert!(said.iter().all(|line| *line == said[0]), "{config:?}: {said:?}");
    said[0].clone()
}

#[test]
fn what_is_not_made_is_refused_in_one_line() {
    let on = (&ad(), DType::F32);
    let clusters = AdaptiveConfig { cutoffs: vec![4], division: 2.0 };
    for (config, line) in [
        (
            softmax(VOCAB).with_adaptive(clusters),
            "a softmax with clusters is not made by a head whose vocabulary is shared out: take a head without clusters",
        ),
        (
            mixtape(VOCAB, 4),
            "a Mixtape is not made by a head whose vocabulary is shared out: its words have gates of their own: use a mixture of softmaxes",
        ),
    ] {
        let whole = config.init(on.0);
        assert_eq!(refusal(&config, 2, |group| whole.shard(group).map(drop)), line);
    }
    let config = softmax(3);
    let whole = config.init(on.0);
    let many = refusal(&config, 4, |group| whole.shard(group).map(drop));
    assert_eq!(many, "4 ranks share 3 rows of a decoder, expected at most as many ranks as rows");

    let config = softmax(VOCAB);
    let whole = head(&config, on);
    let of_options = |options: LossOptions| {
        refusal(&config, 2, |group| {
            let targets = targets(TOKENS, VOCAB, on.0);
            whole.shard(group)?.loss_with(hidden(&config, on), targets, &options).map(drop)
        })
    };
    let rows = Tensor::<2>::ones([TOKENS, VOCAB], on.0) / VOCAB as f64;
    let classes = Tensor::<1>::ones([VOCAB], on.0);
    for (options, start) in [
        (LossOptions::new().with_distributions(rows), "a loss under target distributions"),
        (
            LossOptions::new().with_class_weights(classes).with_z_loss(0.1),
            "a loss with class weights beside label smoothing, a z-loss or an entropy bonus",
        ),
        (LossOptions::new().with_label_smoothing(1.5), "label_smoothing is 1.5"),
    ] {
        let line = of_options(options);
        assert!(line.starts_with(start), "{line}");
    }
    let line = refusal(&config, 2, |group| {
        let (sampling, mut rng) = (Sampling::new().with_top_p(Some(0.5)), Pcg64::seed_from_u64(1));
        whole.shard(group)?.sample::<2, 1>(hidden(&config, on), &sampling, &mut rng).map(drop)
    });
    assert!(line.starts_with("a draw with top_p over all words is not made"), "{line}");
    let line = refusal(&config, 2, |group| whole.shard(group)?.top_k(hidden(&config, on), 12).map(drop));
    assert_eq!(line, "k is 12, expected 1 to the vocabulary's 11");
    // A head of all words in the place of that of a rank's.
    let even = softmax(12);
    let all = head(&even, on);
    let misfit = |group| -> Result<ShardedHead, ShardError> {
        Ok(ShardedHead { head: all.clone(), ..all.shard(group)? })
    };
    for line in [
        refusal(&even, 2, |group| {
            misfit(group)?.loss(hidden(&even, on), targets(TOKENS, 12, on.0)).map(drop)
        }),
        refusal(&even, 2, |group| misfit(group)?.whole().map(drop)),
    ] {
        assert!(line.starts_with("the decoder of a rank's head has shape [12], expected [6]"), "{line}");
    }
    let outside = on_threads(2, |group| {
        whole.shard(group)?.loss(hidden(&config, on), targets(TOKENS, VOCAB + 1, on.0)).map(drop)
    });
    let error = HeadError::Target { target: 11, token: 4, vocab: VOCAB };
    assert!(outside.iter().all(|made| *made == Err(error.clone().into())), "{outside:?}");
}

#[test]
fn a_rank_that_fails_is_an_error_of_the_others() {
    let device = ad();
    let config = mos(VOCAB);
    let on = (&device, DType::F32);
    let whole = head(&config, on);
    let made = on_threads(3, |group| {
        let head = whole.shard(group)?;
        let vocab = if head.shared.share.group.rank() == 2 { 100 } else { VOCAB };
        head.loss(hidden(&config, on), targets(TOKENS, vocab, &device)).map(drop)
    });
    assert!(matches!(made[2], Err(ShardError::Head(HeadError::Target { .. }))), "{made:?}");
    assert_eq!(made[..2], [const { Err(ShardError::Gone { rank: 2 }) }; 2]);

    // Between the passes: the backward pass of the others ends by a panic that says so.
    let line = panic_of(|| {
        on_threads(2, |group| {
            let head = whole.shard(group).unwrap();
            let loss = head.loss(hidden(&config, on), targets(TOKENS, VOCAB, &device)).unwrap();
            match head.shared.share.group.rank() {
                0 => loss.backward(),
                _ => return,
            };
        });
    });
    let want = "backward pass of a shared vocabulary: rank 1 is gone, and this one waits for it: look for the first error";
    assert_eq!(line, want);
}
