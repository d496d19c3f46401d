//! What is timed of an output layer: a training step under every option of the loss, and what it predicts.

use burn::module::Module;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{DType, Device, Distribution, Int, Tensor};
use clap::ValueEnum;
use highrank::{Divergence, HeadConfig, LogProbOptions, LossOptions, OutputHead, Sampling};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

/// An output layer whose training step is timed.
// There is one: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum OutputLayer {
    /// A head, with its fused loss.
    Head(OutputHead),
    /// Burn's own layer, whose loss keeps the logits of all tokens.
    Burn(Linear),
}

impl OutputLayer {
    /// Burn's `Linear` with the head's initial values, of width `d` over `vocab` words.
    pub fn burn(d: usize, vocab: usize, device: &Device) -> Self {
        let linear =
            LinearConfig::new(d, vocab).with_initializer(Initializer::Uniform { min: -0.1, max: 0.1 });
        Self::Burn(linear.init(device))
    }

    /// The type of the parameters, which the inputs that are made for the layer have, too.
    fn dtype(&self) -> DType {
        match self {
            Self::Head(head) => head_dtype(head),
            Self::Burn(linear) => linear.weight.val().dtype(),
        }
    }
}

fn head_dtype(head: &OutputHead) -> DType {
    head.decoder.weight.as_ref().expect("a head with a decoder of its own").val().dtype()
}

/// An option of the loss whose cost is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossOption {
    /// None: the mean nll.
    Plain,
    /// One ignored token, of target −100, after every eight that count.
    Ignore,
    /// Label smoothing of 0.1.
    Smoothing,
    /// 16 words a token with a probability of 0.9 together.
    Teacher,
    /// A z-loss of 1e-4.
    ZLoss,
    /// A weight of 1e-3 on the variation of the priors, which only mixtures have.
    PriorCv,
    /// Temperature 2.
    Temperature,
    /// Statistics of every token.
    Statistics,
    /// A weight for each token.
    Weights,
    /// A weight for each word of the vocabulary.
    ClassWeights,
    /// An entropy bonus of 0.01.
    Entropy,
    /// A softmax teacher of the decoder's width, by the forward KL divergence.
    Distillation,
    /// In place of the mean nll the log-probabilities of one word a token under a gradient of its own each: a policy gradient.
    LogProbs,
    /// The same with the entropies.
    Policy,
}

/// The target of tokens that do not count.
const IGNORED: i64 = -100;
/// Tokens that count between two that do not.
const RUN: usize = 8;
/// Words that a teacher lists.
const LISTED: usize = 16;

impl LossOption {
    /// What it asks of a head, for targets over its vocabulary.
    fn asked(self, head: &OutputHead, targets: &[i64], device: &Device) -> Asked {
        let (options, vocab) = (LossOptions::new(), head.vocab());
        let weights = |count: usize| Tensor::<1>::random([count], Distribution::Uniform(0.5, 1.5), device);
        Asked::Options(match self {
            Self::Plain => return Asked::Loss,
            Self::LogProbs | Self::Policy => {
                let advantages = Tensor::random([targets.len(), 1], Distribution::Normal(0.0, 1.0), device);
                let options = LogProbOptions { entropy: self == Self::Policy, ..Default::default() };
                return Asked::LogProbs(options, advantages);
            }
            Self::Distillation => {
                let d = head.decoder.d_embedding;
                let teacher = HeadConfig::softmax(d, vocab).with_precision(head.precision).init(device);
                let teacher = teacher.distribution(random_hidden(targets.len(), d, DType::F32, device));
                options.with_distillation(teacher, Divergence::ForwardKl)
            }
            // The head's.
            Self::Temperature => options,
            Self::Entropy => options.with_entropy_bonus(0.01),
            Self::Ignore => options.with_ignore_index(IGNORED),
            Self::Smoothing => options.with_label_smoothing(0.1),
            Self::Teacher => {
                let listed = LISTED.min(vocab);
                let word = |target: i64, i: usize| (target + (i * (vocab / listed)) as i64) % vocab as i64;
                let ids: Vec<i64> =
                    targets.iter().flat_map(|&target| (0..listed).map(move |i| word(target, i))).collect();
                let shape = [targets.len(), listed];
                let ids = Tensor::<1, Int>::from_data(ids.as_slice(), device).reshape(shape);
                options.with_teacher(ids, Tensor::full(shape, 0.9 / listed as f64, device))
            }
            Self::ZLoss => options.with_z_loss(1e-4),
            Self::PriorCv => options.with_prior_cv(1e-3),
            Self::Statistics => options.with_statistics(true),
            Self::Weights => options.with_token_weights(weights(targets.len())),
            Self::ClassWeights => options.with_class_weights(weights(vocab)),
        })
    }
}

/// What is timed of an output layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Forward and backward of the mean loss.
    Step,
    /// The nll of every token.
    Nll,
    /// All log-probabilities.
    LogProbs,
    /// The most probable words of every token.
    TopK,
    /// A word drawn for every token.
    Sample,
    /// The most probable word of a single token.
    Decode,
}

/// How target words are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetWords {
    /// Each word alike.
    Even,
    /// By Zipf's law, as in language: the word of rank r with a probability proportional to 1/r.
    Zipf,
}

impl TargetWords {
    /// Words of a vocabulary, numbered by frequency; the same in every call.
    pub fn draw(self, tokens: usize, vocab: usize) -> Vec<i64> {
        let mut rng = Pcg64::seed_from_u64(0);
        if self == Self::Even {
            return (0..tokens).map(|_| rng.random_range(0..vocab as i64)).collect();
        }
        let mut sums = Vec::with_capacity(vocab);
        let mut sum = 0.0;
        for rank in 1..=vocab {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let word = |number: f64| sums.partition_point(|below| *below <= number * sum).min(vocab - 1);
        (0..tokens).map(|_| word(rng.random()) as i64).collect()
    }
}

/// What a step asks of its layer.
#[derive(Debug, Clone)]
// There is one: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
enum Asked {
    /// The short form of the loss.
    Loss,
    Options(LossOptions),
    /// Log-probabilities of the targets, with what each is multiplied with, `[N, 1]`.
    LogProbs(LogProbOptions, Tensor<2>),
}

/// Forward and backward of a layer's loss on random hidden states.
#[derive(Debug, Clone)]
pub struct OutputStep {
    layer: OutputLayer,
    /// Of Burn's own layer.
    cross_entropy: CrossEntropyLoss,
    /// `[N, H]`, tracked.
    hidden: Tensor<2>,
    /// `[N]`
    targets: Tensor<1, Int>,
    asked: Asked,
}

impl OutputStep {
    /// For the target words of the tokens that count and hidden states of width `d_hidden`. The device tracks gradients. Burn's
    /// own layers know no options.
    pub fn new(
        layer: OutputLayer,
        mut words: Vec<i64>,
        d_hidden: usize,
        option: LossOption,
        device: &Device,
    ) -> Self {
        let layer = match layer {
            OutputLayer::Head(head) if option == LossOption::Temperature => {
                OutputLayer::Head(head.at_temperature(2.0))
            }
            layer => layer,
        };
        if option == LossOption::Ignore {
            words = words.chunks(RUN).flat_map(|run| run.iter().copied().chain([IGNORED])).collect();
        }
        let hidden = random_hidden(words.len(), d_hidden, layer.dtype(), device);
        let asked = match &layer {
            OutputLayer::Head(head) => option.asked(head, &words, device),
            OutputLayer::Burn(..) => Asked::Loss,
        };
        let targets = Tensor::from_data(words.as_slice(), device);
        let cross_entropy = CrossEntropyLossConfig::new().init(device);
        Self { layer, cross_entropy, hidden: hidden.detach().require_grad(), targets, asked }
    }

    /// Makes one step. Returns the loss in nats.
    pub fn run(&self) -> f64 {
        let (hidden, targets) = (self.hidden.clone(), self.targets.clone());
        let loss = match (&self.layer, &self.asked) {
            (OutputLayer::Head(head), Asked::Loss) => head.loss(hidden, targets),
            (OutputLayer::Head(head), Asked::Options(options)) => {
                head.loss_with(hidden, targets, options).value
            }
            (OutputLayer::Head(head), Asked::LogProbs(options, advantages)) => {
                let words = targets.reshape([-1, 1]);
                let made = head.token_log_probs(hidden, words, options);
                let gain = (made.log_probs * advantages.clone()).mean();
                let bonus = made.entropy.map(|entropy| entropy.mean() * 0.01);
                -bonus.map_or(gain.clone(), |bonus| gain + bonus)
            }
            (OutputLayer::Burn(linear), _) => self.cross_entropy.forward(linear.forward(hidden), targets),
        };
        let gradients = loss.backward();
        let value = loss.inner().into_scalar();
        drop(gradients);
        value
    }
}

/// Predictions of a head for random hidden states.
#[derive(Debug)]
pub struct OutputPrediction {
    head: OutputHead,
    mode: Mode,
    /// Words that [`Mode::TopK`] asks for.
    top: usize,
    /// `[N, H]`
    hidden: Tensor<2>,
    /// `[N]`
    targets: Tensor<1, Int>,
    rng: Pcg64,
}

impl OutputPrediction {
    /// For the target words of all tokens and hidden states of width `d_hidden`; [`Mode::TopK`] asks for `top` words. The device tracks
    /// no gradients.
    ///
    /// # Panics
    /// If the mode is [`Mode::Step`].
    pub fn new(
        head: OutputHead,
        words: &[i64],
        d_hidden: usize,
        mode: Mode,
        top: usize,
        device: &Device,
    ) -> Self {
        assert!(mode != Mode::Step, "OutputPrediction: a step is no prediction");
        let hidden = random_hidden(words.len(), d_hidden, head_dtype(&head), device);
        let targets = Tensor::from_data(words, device);
        Self { head, mode, top, hidden, targets, rng: Pcg64::seed_from_u64(0) }
    }

    /// Predicts once.
    pub fn run(&mut self) {
        let (head, hidden) = (&self.head, self.hidden.clone());
        match self.mode {
            Mode::Step | Mode::Nll => drop(head.nll(hidden, self.targets.clone())),
            Mode::LogProbs => drop(head.forward(hidden)),
            Mode::TopK => drop(head.top_k(hidden, self.top)),
            Mode::Sample | Mode::Decode => {
                let temperature = if self.mode == Mode::Decode { 0.0 } else { 1.0 };
                let sampling = Sampling::new().with_temperature(temperature);
                let words: Tensor<1, Int> = head.sample(hidden, &sampling, &mut self.rng).expect("a word");
                drop(words);
            }
        }
    }

    /// Mean nll of the targets in nats.
    pub fn loss(&self) -> f64 {
        self.head.nll(self.hidden.clone(), self.targets.clone()).mean().into_scalar()
    }
}

fn random_hidden(tokens: usize, width: usize, dtype: DType, device: &Device) -> Tensor<2> {
    Tensor::<2>::random([tokens, width], Distribution::Normal(0.0, 1.0), device).cast(dtype)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::module::Param;
    use highrank::cast_parameters;

    const D: usize = 6;
    const VOCAB: usize = 40;

    fn step(option: LossOption) -> OutputStep {
        let device = Device::flex().autodiff();
        let config = match option {
            LossOption::PriorCv => HeadConfig::mos(D, 4, VOCAB, 2),
            _ => HeadConfig::softmax(D, VOCAB),
        };
        let words = TargetWords::Even.draw(20, VOCAB);
        OutputStep::new(OutputLayer::Head(config.init(&device)), words, D, option, &device)
    }

    #[test]
    fn burns_own_layers_with_the_heads_parameters_have_its_loss() {
        let fused = step(LossOption::Plain);
        let OutputLayer::Head(head) = &fused.layer else { unreachable!() };
        let mut layer = OutputLayer::burn(D, VOCAB, &fused.hidden.device());
        assert_eq!(layer.num_params(), head.num_params());
        let OutputLayer::Burn(linear) = &mut layer else { unreachable!() };
        let weight = head.decoder.weight.as_ref().unwrap().val().transpose();
        linear.weight = Param::from_tensor(weight.detach());
        linear.bias = head.decoder.bias.as_ref().map(|bias| Param::from_tensor(bias.val().detach()));
        let burn = OutputStep { layer, ..fused.clone() };
        assert!((burn.run() - fused.run()).abs() < 1e-5, "{} against {}", burn.run(), fused.run());
    }

    #[test]
    fn ignored_tokens_are_beside_as_many_that_count() {
        let ignoring = step(LossOption::Ignore);
        let targets: Vec<i64> = ignoring.targets.to_data().iter::<i64>().collect();
        let kept: Vec<i64> =
            (0..targets.len() as i64).filter(|&token| targets[token as usize] != IGNORED).collect();
        assert_eq!((targets.len(), kept.len()), (23, 20));
        let kept = Tensor::<1, Int>::from_data(kept.as_slice(), &ignoring.hidden.device());
        let plain = OutputStep {
            hidden: ignoring.hidden.clone().select(0, kept.clone()).detach().require_grad(),
            targets: ignoring.targets.clone().select(0, kept),
            asked: Asked::Loss,
            ..ignoring.clone()
        };
        assert!((plain.run() - ignoring.run()).abs() < 1e-6);
    }

    #[test]
    fn a_layer_of_another_type_has_nearly_the_same_loss() {
        let wide = step(LossOption::Plain);
        let device = wide.hidden.device();
        let layer = cast_parameters(wide.layer.clone(), DType::BF16);
        assert_eq!(layer.dtype(), DType::BF16);
        let words = TargetWords::Even.draw(20, VOCAB);
        let short = OutputStep::new(layer, words, D, LossOption::Plain, &device);
        assert_eq!(short.hidden.dtype(), DType::BF16);
        let wide =
            OutputStep { hidden: short.hidden.clone().cast(DType::F32).detach().require_grad(), ..wide };
        let (wide, short) = (wide.run(), short.run());
        assert!(wide != short && (wide - short).abs() < 1e-2, "{wide} against {short}");
    }

    #[test]
    fn words_follow_zipfs_law() {
        let words = TargetWords::Zipf.draw(20_000, 50);
        assert!(words.iter().all(|word| (0..50).contains(word)));
        let total: f64 = (1..=50).map(|rank| 1.0 / f64::from(rank)).sum();
        for word in [0, 1, 9, 49] {
            let share = words.iter().filter(|drawn| **drawn == word).count() as f64 / 20_000.0;
            // Four standard deviations of a frequency of 20,000 draws are at most 0.0142.
            assert!((share - 1.0 / (word + 1) as f64 / total).abs() < 0.015, "{share} of word {word}");
        }
    }

    #[test]
    fn every_option_and_prediction_runs() {
        for option in LossOption::value_variants() {
            let loss = step(*option).run();
            // A policy's is around 0.
            let is_policy = matches!(option, LossOption::LogProbs | LossOption::Policy);
            assert!(loss.is_finite() && loss != 0.0 && (loss > 0.0 || is_policy), "{option:?}");
        }
        let device = Device::flex();
        for mode in &Mode::value_variants()[1..] {
            let head = HeadConfig::mos(D, 4, VOCAB, 2).init(&device);
            let words = TargetWords::Even.draw(3, VOCAB);
            for top in [10, VOCAB] {
                let mut prediction = OutputPrediction::new(head.clone(), &words, D, *mode, top, &device);
                prediction.run();
                assert!((prediction.loss() - (VOCAB as f64).ln()).abs() < 0.5, "{mode:?}");
            }
        }
    }
}
