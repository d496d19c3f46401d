//! Every case of a folder of float64 reference data, on every backend that the tests are built with: those of the CPU in
//! f32 and f64, those of a GPU in f32.
//!
//! `HIGHRANK_GOLDEN_DIR=DIR cargo test --release --test golden` reads any folder of the same format, and
//! `HIGHRANK_GOLDEN_MODEL_DIR=DIR` any folder of whole models.
//!
//! | folder of its own | what is in it |
//! |---|---|
//! | `data` | heads, logit maps, LSTM layers and optimisers, dynamic evaluation, analyses |
//! | `data/options` | losses with options: ignored tokens, hidden states of NaN, masked words, teachers; beam search |
//! | `data/logprobs` | log-probabilities of given words, entropy, a divisor, distillation, losses of preferences and policies |
//! | `data/mixtape` | Mixtape heads, made by `mixtape/generate.py` |
//! | `data/doc` | direct output connection, contexts without a tanh alone, and losses with a penalty on the variation of the priors, made by `doc/generate.py` |
//! | `data/adaptive` | adaptive softmax with a softmax or a mixture in the head cluster, losses with options among them, made by `adaptive/generate.py` |
//! | `models` | whole models |
//! | `trajectory` | training steps, under dropout masks that are written down |

mod analysis;
mod backends;
mod beam;
mod case;
mod compare;
mod dynamic;
mod head;
mod logprobs;
mod lstm;
mod model;
mod optimiser;
mod options;
mod pointwise;
mod prior_cv;
#[path = "../priors.rs"]
mod priors;
// Its reference is computed in f64.
#[cfg(feature = "ndarray")]
mod training;
mod trajectory;

use backends::{Setting, settings};
use case::Case;
use compare::{Report, assert_agree};

#[test]
fn every_case_agrees_with_the_reference() {
    let cases = case::folders().into_iter().flat_map(|folder| {
        let cases = case::read(&folder);
        assert!(!cases.is_empty(), "{} lists no case", folder.display());
        cases
    });
    assert_agree("all cases", cases.flat_map(|case| check_everywhere(&case)));
}

/// One report for each backend and precision.
fn check_everywhere(case: &Case) -> Vec<Report> {
    settings().map(|on| check(case, &on.autodiff())).collect()
}

fn check(case: &Case, on: &Setting) -> Report {
    let mut report = Report::new(format!("{} on {}", case.entry.name, on.name));
    match case.entry.kind.as_str() {
        "head" => head::check(case, on, &mut report),
        "head_options" => options::check(case, on, &mut report),
        "head_token_log_probs" | "head_entropy" => logprobs::check_words(case, on, &mut report),
        "head_divisor" => logprobs::check_divisor(case, on, &mut report),
        "head_distill" => logprobs::check_distillation(case, on, &mut report),
        "policy_losses" => logprobs::check_policy(case, on, &mut report),
        "prior_cv" => prior_cv::check(case, on, &mut report),
        "pointwise" => pointwise::check(case, on, &mut report),
        "lstm" => lstm::check(case, on, &mut report),
        "ar_tar" => lstm::check_regularisation(case, on, &mut report),
        "ntasgd" => optimiser::check(case, on, &mut report),
        "dyneval" => dynamic::check(case, on, &mut report),
        "nt_triggers" => optimiser::check_triggers(case, &mut report),
        "rank" => analysis::check_rank(case, on, &mut report),
        "beam_search" => beam::check(case, on, &mut report),
        "pairwise_kl" => analysis::check_pairwise(case, &mut report),
        "mode_match" => analysis::check_modes(case, &mut report),
        other => report.fail(format!("unknown kind of case `{other}`")),
    }
    report
}

#[test]
fn every_whole_model_agrees_with_the_reference() {
    let folder = model::folder();
    let models = model::read(&folder);
    assert!(!models.is_empty(), "{} holds no model", folder.display());
    assert_agree(&format!("{} models", models.len()), models.iter().flat_map(check_model_everywhere));
}

/// One report for each backend and precision.
fn check_model_everywhere(model: &model::Model) -> Vec<Report> {
    settings().map(|on| model.check(&on)).collect()
}

#[test]
fn a_wrong_value_of_a_whole_model_is_reported() {
    let mut model = model::read(&model::own()).remove(0);
    model.damage();
    for report in check_model_everywhere(&model) {
        assert!(
            report.failures.iter().any(|failure| failure.contains("fused nll[3]")),
            "{:?}",
            report.failures
        );
    }
}

#[test]
fn a_wrong_value_and_an_unknown_kind_are_reported() {
    let mut case = case::read(&case::own("")).remove(0);
    case.entry.kind = "surprise".into();
    for report in check_everywhere(&case) {
        assert!(report.failures[0].contains("unknown kind of case `surprise`"), "{:?}", report.failures);
    }

    let mut report = Report::new("self-test");
    let want = [1.0, 2.0];
    report.compare("x", &[1.0, f64::NAN], &want, 1e-3);
    report.compare("y", &[1.0, 2.1], &want, 1e-3);
    assert_eq!(report.failures.len(), 2, "{:?}", report.failures);
}

#[test]
fn wrong_results_of_a_head_are_reported() {
    let cases = ["options", "adaptive", "logprobs"].map(|folder| case::read(&case::own(folder))).concat();
    let by_name = |name: &str| cases.iter().find(|case| case.entry.name == name).expect("a case").clone();
    // Of a token that counts, and by more than rounding.
    for (name, tensors) in [
        ("mos_plif_teacher_all", &["loss", "nll", "teacher_term", "smooth_term", "z_term", "token_loss"][..]),
        ("mos_plif_teacher_all", &["entropy", "argmax", "max_log_prob", "log_probs", "token_weights"]),
        ("mos_plif_teacher_all", &["grad.hidden", "grad.decoder_weight", "grad.prior_weight", "grad.plif_v"]),
        ("mos_none", &["cotangent", "mid.lse", "mid.log_prior", "grad.latent_bias"]),
        ("adaptive_mos_all", &["z_term", "entropy", "max_log_prob", "argmax", "grad.tail_0_projection"]),
        ("plif_words_tau", &["word_log_probs", "upstream", "log_probs", "loss", "grad.plif_v"]),
        ("mos_entropy_words_all", &["entropy", "entropy_upstream", "grad.hidden", "grad.prior_weight"]),
        ("softmax_divisor_all", &["loss", "nll", "z_term", "token_loss", "token_weights", "grad.hidden"]),
        ("mos_plif_jsd_tenth_upstream", &["divergence", "teacher_log_probs", "upstream", "grad.latent_bias"]),
        ("mos_total_variation", &["loss", "divergence", "teacher.hidden", "grad.decoder_bias"]),
        ("softmax_dpo", &["rewards", "pair_loss", "ref_log_probs", "sequence_log_probs", "grad.hidden"]),
        ("mos_orpo", &["log_odds", "pair_loss", "chosen_nll", "token_log_probs", "loss"]),
        ("mos_kto", &["log_ratios", "sequence_loss", "ref_log_probs", "grad.latent_weight"]),
        (
            "mos_grpo_all",
            &["policy_term", "kl_term", "token_loss", "clipped", "entropy", "advantages", "loss"],
        ),
    ] {
        for tensor in tensors {
            let mut case = by_name(name);
            let shape = case.array(tensor).shape.clone();
            let row: usize = shape[1..].iter().product();
            let of_tokens = shape[0] == case.array("counted").len();
            let element = if of_tokens { case.counted()[0] * row } else { 0 };
            let by = match *tensor {
                "argmax" | "clipped" => 1.0,
                // Those that the manifest has a tolerance for may be off by some 1e-4 in f32.
                _ if case.entry.tolerance.is_some() => 1e-2,
                _ => 1e-3,
            };
            case.damage(tensor, element, by);
            // Where each operation is compiled for each shape, fewer tensors are compared.
            for on in settings().filter(|on| !on.compiles) {
                let report = check(&case, &on.autodiff());
                assert!(!report.failures.is_empty(), "{tensor} of {name} went unseen on {}", on.name);
            }
        }
    }
}
