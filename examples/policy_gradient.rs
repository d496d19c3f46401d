//! Policy gradients on a task whose answers can be checked: a small GPT learns to sort digits, told no more than whether it did.
//!
//! ```text
//! cargo run --release --example policy_gradient        two minutes
//! ```
//!
//! A few supervised steps show the model what an answer looks like: one in ten is right. Then it draws several answers to each
//! prompt. An answer is worth 1 if it is right and 0 if not; how much better it is than the others to its prompt is its advantage
//! (GRPO, Shao et al. 2024). The output layer is a Mixture of Softmaxes: log-probabilities and entropies come out of it without stored
//! logits.

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use gpt::{Gpt, GptConfig, IGNORED};
use highrank::policy::{GroupScale, GrpoOptions, group_advantages, grpo_loss};
use highrank::{HeadConfig, LogProbOptions, LossOptions, Sampling, TokenLogProbs};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Digits to be sorted.
const DIGITS: usize = 5;
/// The words 0 to 9 are the digits; this one ends a prompt.
const ASK: i64 = 10;
/// Ends an answer.
const END: i64 = 11;
const WORDS: usize = 12;
/// Tokens of a prompt, and the most of an answer: the digits and the end.
const LENGTH: usize = DIGITS + 1;

/// Prompts of a supervised step, and how many steps.
const EXAMPLES: usize = 64;
const SUPERVISED: usize = 80;
/// Steps of the policy gradient, prompts of a step, and answers to each.
const STEPS: usize = 200;
const PROMPTS: usize = 32;
const ANSWERS: usize = 8;
/// Optimiser steps on the same answers. From the second one on the model is not the one that drew them, and the clip matters.
const REUSES: usize = 2;
const LEARNING_RATE: f64 = 1e-3;

fn main() {
    let device = Device::default();
    device.seed(1);
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let head = HeadConfig::mos(64, 32, WORDS, 3).with_tied(true);
    let config = GptConfig::new(64, head).with_context(2 * LENGTH).with_dropout(0.0);
    let model = config.try_init(&device.autodiff()).expect("sizes that fit each other");

    let before = imitate(model, &mut rng);
    let after = improve(before.clone(), &mut rng);
    let [before, after] = [before, after].map(|model| share_right(&model.valid(), &mut rng));
    println!("right if no word is drawn: {before:.2} before, {after:.2} after");
}

/// Supervised steps on right answers.
fn imitate(mut model: Gpt, rng: &mut Pcg64Mcg) -> Gpt {
    let mut optimiser = AdamConfig::new().init();
    for _ in 0..SUPERVISED {
        let prompts: Vec<_> = (0..EXAMPLES).map(|_| prompt(rng)).collect();
        let answers: Vec<_> = prompts.iter().map(|prompt| sorted(prompt)).collect();
        let Batch { inputs, words } = Batch::new(&prompts, &answers, &model);
        let options = LossOptions::new().with_ignore_index(IGNORED);
        let loss = model.head().loss_with(model.hidden(inputs), words.squeeze_dim::<2>(2), &options);
        model = step(model, loss.value, &mut optimiser, LEARNING_RATE);
    }
    model
}

/// Steps of the policy gradient on the model's own answers.
fn improve(mut model: Gpt, rng: &mut Pcg64Mcg) -> Gpt {
    let reference = model.valid();
    let mut optimiser = AdamConfig::new().init();
    let mut mean_reward = 0.0;
    for done in 0..STEPS {
        let prompts: Vec<_> = (0..PROMPTS).flat_map(|_| vec![prompt(rng); ANSWERS]).collect();
        let actor = model.valid();
        let answers = draw(&actor, &prompts, &Sampling::new(), rng);
        let rewards = rewards(&prompts, &answers);
        mean_reward += rewards.iter().sum::<f32>() / (rewards.len() * 10) as f32;

        let batch = Batch::new(&prompts, &answers, &model);
        let rewards = Tensor::from_data(TensorData::new(rewards, [PROMPTS, ANSWERS]), &batch.words.device());
        let advantages = group_advantages(rewards, GroupScale::Deviation).reshape([PROMPTS * ANSWERS, 1]);
        let [(old, _), (of_reference, _)] = [&actor, &reference].map(|model| log_probs(model, &batch));
        for _ in 0..REUSES {
            let (log_probs, entropy) = log_probs(&model, &batch);
            let options = GrpoOptions {
                clip_low: 0.2,
                clip_high: 0.28,
                kl_penalty: Some((0.01, of_reference.clone())),
                entropy_bonus: Some((0.003, entropy)),
                ..Default::default()
            };
            let loss = grpo_loss(log_probs, old.clone(), advantages.clone(), batch.mask(), &options);
            let learning_rate = LEARNING_RATE * (1.0 - done as f64 / STEPS as f64);
            model = step(model, loss.value, &mut optimiser, learning_rate);
        }
        if done % 10 == 9 {
            println!("step {:>3}  mean reward {mean_reward:.3}", done + 1);
            mean_reward = 0.0;
        }
    }
    model
}

/// How many of a model's likeliest answers are right.
fn share_right(model: &Gpt, rng: &mut Pcg64Mcg) -> f32 {
    let prompts: Vec<_> = (0..500).map(|_| prompt(rng)).collect();
    let answers = draw(model, &prompts, &Sampling::new().with_temperature(0.0), rng);
    rewards(&prompts, &answers).iter().sum::<f32>() / 500.0
}

/// Digits in any order, and the word that asks for an answer.
fn prompt(rng: &mut Pcg64Mcg) -> Vec<i64> {
    (0..DIGITS).map(|_| rng.random_range(0..10)).chain([ASK]).collect()
}

/// The right answer.
fn sorted(prompt: &[i64]) -> Vec<i64> {
    let mut answer = prompt[..DIGITS].to_vec();
    answer.sort_unstable();
    answer.push(END);
    answer
}

/// 1 for each right answer, 0 for any other.
fn rewards(prompts: &[Vec<i64>], answers: &[Vec<i64>]) -> Vec<f32> {
    let pairs = prompts.iter().zip(answers);
    pairs.map(|(prompt, answer)| if *answer == sorted(prompt) { 1.0 } else { 0.0 }).collect()
}

/// An answer to each prompt, up to its end.
fn draw(model: &Gpt, prompts: &[Vec<i64>], sampling: &Sampling, rng: &mut Pcg64Mcg) -> Vec<Vec<i64>> {
    let (head, device) = (model.head(), model.positions.weight.device());
    let mut texts = prompts.to_vec();
    for length in LENGTH..2 * LENGTH {
        let tokens = TensorData::new(texts.concat(), [texts.len(), length]);
        let last = model.hidden(Tensor::from_data(tokens, &device)).narrow(1, length - 1, 1);
        let words = head.sample::<3, 2>(last, sampling, rng).unwrap().into_data();
        texts.iter_mut().zip(words.iter::<i64>()).for_each(|(text, word)| text.push(word));
    }
    let answer = |text: Vec<i64>| {
        let answer = &text[LENGTH..];
        let end = answer.iter().position(|word| *word == END);
        answer[..end.map_or(LENGTH, |end| end + 1)].to_vec()
    };
    texts.into_iter().map(answer).collect()
}

/// Prompts with their answers, for a model.
struct Batch {
    /// What the model reads, `[B, T]`.
    inputs: Tensor<2, Int>,
    /// What it should say next, `[B, T, 1]`: a word of an answer, or `IGNORED`.
    words: Tensor<3, Int>,
}

impl Batch {
    fn new(prompts: &[Vec<i64>], answers: &[Vec<i64>], model: &Gpt) -> Self {
        let device = model.positions.weight.device();
        let length = 2 * LENGTH - 1;
        let (mut inputs, mut words) = (vec![], vec![]);
        for (prompt, answer) in prompts.iter().zip(answers) {
            let text = [&prompt[..], answer].concat();
            inputs.extend((0..length).map(|place| text.get(place).copied().unwrap_or(END)));
            let next = |place: usize| text.get(place + 1).filter(|_| place + 1 >= LENGTH).copied();
            words.extend((0..length).map(|place| next(place).unwrap_or(IGNORED)));
        }
        let sequences = prompts.len();
        Self {
            inputs: Tensor::from_data(TensorData::new(inputs, [sequences, length]), &device),
            words: Tensor::from_data(TensorData::new(words, [sequences, length, 1]), &device),
        }
    }

    /// Which tokens count, `[B, T]`.
    fn mask(&self) -> Tensor<2, Bool> {
        self.words.clone().squeeze_dim::<2>(2).not_equal_elem(IGNORED)
    }
}

/// Log-probabilities of a batch's words, and entropies, `[B, T]` both.
fn log_probs(model: &Gpt, batch: &Batch) -> (Tensor<2>, Tensor<2>) {
    let options = LogProbOptions { ignored: vec![IGNORED], entropy: true };
    let hidden = model.hidden(batch.inputs.clone());
    let TokenLogProbs { log_probs, entropy } =
        model.head().token_log_probs(hidden, batch.words.clone(), &options);
    (log_probs.squeeze_dim(2), entropy.expect("it was asked for").squeeze_dim(2))
}

/// One step of the optimiser.
fn step(model: Gpt, loss: Tensor<1>, optimiser: &mut ModuleOptimizer, learning_rate: f64) -> Gpt {
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    optimiser.step(learning_rate, model, gradients)
}
