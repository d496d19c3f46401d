//! The hierarchical encoder-decoder.

mod init;
mod packing;
#[cfg(all(test, feature = "flex"))]
mod tests;

use awd_lstm::lstm::{Lstm, LstmState, drop_connect_mask};
use burn::module::{Module, Param, ParamId};
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor, TensorData};
use highrank::shard::Share;
use highrank::{LossOptions, OutputHead, Reduction};
use runs::WordRows;

use self::packing::Packing;
use crate::data::{Batch, Contexts, PAD, Padded};

/// A hierarchical encoder-decoder for dialogues (Zhao et al., arXiv 1703.10960) with any of the heads of [`highrank`]. Should be
/// created with [`ModelConfig::try_init`](crate::ModelConfig::try_init).
///
/// ```text
/// u_j = [forward LSTM over E w_1 .. w_L ; backward LSTM over E w_L .. w_1]    each utterance of the context
/// s   = LSTM over [u_j ; floor_j, one of two]                                 the context, oldest first
/// h_0 = c_0 = W s + b
/// h_i = LSTM(E y_(i−1), h_(i−1));   P(y_i | ·) = head(h_i)
/// ```
///
/// An utterance that several contexts of a batch share is encoded once, and its gradients add up. Dropout of the embedded words, of
/// `u_j` and of the decoder's outputs acts while the weights are on an autodiff device: evaluate `model.valid()`.
#[derive(Module, Debug)]
pub struct Seq2Seq {
    /// E `[V, e]`, of encoder and decoder. The row of `<pad>` is 0.
    pub embedding: Param<Tensor<2>>,
    /// The utterance encoder from the first word to the last.
    pub forward: Lstm,
    /// The utterance encoder from the last word to the first.
    pub backward: Lstm,
    /// The context encoder.
    pub context: Lstm,
    /// W and b.
    pub start: Linear,
    /// The decoder.
    pub decoder: Lstm,
    /// The output layer.
    pub head: OutputHead,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    window: usize,
    /// The words that embedding, decoder and its bias have rows of.
    #[module(skip)]
    words: WordRows,
}

impl Seq2Seq {
    /// The device of the weights.
    pub fn device(&self) -> Device {
        self.embedding.lazy_device()
    }

    /// Which rows of embedding, output matrix and its bias this rank holds, and these parameters; `None` if it holds all.
    pub fn shared_rows(&self) -> Option<(&Share, Vec<ParamId>)> {
        let decoder = &self.head.decoder;
        let matrix = decoder.weight.as_ref().map(|matrix| matrix.id);
        let bias = decoder.bias.as_ref().map(|bias| bias.id);
        self.words.shared([Some(self.embedding.id), matrix, bias])
    }

    /// Entries of a context.
    pub fn window(&self) -> usize {
        self.window
    }

    /// The decoder's state before the first word, a row a context: `h_0 = c_0`, `[P, H]`.
    ///
    /// # Panics
    /// If there is no context, or one is empty.
    pub fn encode(&self, contexts: &Contexts) -> LstmState {
        let utterances = Packing::new(&contexts.utterances.lengths);
        let words = self.embed(self.indices(words_of(&utterances, &contexts.utterances)));
        self.encode_words(contexts, &utterances, words)
    }

    /// The sum of the responses' negative log-likelihoods in nats, `[1]`. Every word and `</s>` counts, `<s>` and padding do not.
    ///
    /// # Panics
    /// If there is no pair, or a context is empty.
    pub fn loss(&self, batch: &Batch) -> Tensor<1> {
        let (hidden, targets) = self.predictions(batch);
        let options = LossOptions::new().with_reduction(Reduction::Sum);
        self.words.loss(self.head.clone(), hidden, targets, &options).value
    }

    /// The negative log-likelihood of each word and `</s>` of each response in nats, response after response: `[N]` for N target
    /// tokens.
    ///
    /// # Panics
    /// As [`loss`](Self::loss).
    pub fn nll(&self, batch: &Batch) -> Tensor<1> {
        let (hidden, targets) = self.predictions(batch);
        self.words.nll(self.head.clone(), hidden, targets)
    }

    /// One step of the decoder: the hidden states `[N, H]` that the head takes, and the state after `words`, `[N]`.
    pub(crate) fn step(&self, words: Tensor<1, Int>, state: LstmState) -> (Tensor<2>, LstmState) {
        let (output, state) = self.decoder.forward(self.embed(words).unsqueeze_dim(0), state, 0.0);
        (output.squeeze_dim(0), state)
    }

    /// The decoder's outputs `[N, H]` in front of every target token, response after response, and the targets.
    fn predictions(&self, batch: &Batch) -> (Tensor<2>, Tensor<1, Int>) {
        let Batch { contexts, inputs: read, targets } = batch;
        let utterances = Packing::new(&contexts.utterances.lengths);
        let inputs = Packing::new(&read.lengths);
        // One lookup: its gradient is a matrix of the embedding's size.
        let mut words = words_of(&utterances, &contexts.utterances);
        let of_utterances = words.len();
        words.extend(words_of(&inputs, read));
        let of_inputs = words.len() - of_utterances;
        let words = self.embed(self.indices(words));
        let heard = words.clone().narrow(0, 0, of_utterances);
        let start = self.encode_words(contexts, &utterances, heard).hidden;
        let order = inputs.order.iter().map(|&response| response as i32).collect();
        let start = start.select(0, self.indices(order));
        let start = LstmState { hidden: start.clone(), cell: start };
        let outputs = inputs.run(&self.decoder, words.narrow(0, of_utterances, of_inputs), start);
        let hidden = self.dropped(outputs.select(0, self.indices(inputs.filled())));
        let targets = (0..targets.rows()).flat_map(|row| targets.row(row).iter().copied()).collect();
        (hidden, self.indices(targets))
    }

    /// [`encode`](Self::encode) from the embedded words of the utterances.
    fn encode_words(&self, contexts: &Contexts, utterances: &Packing, words: Tensor<2>) -> LstmState {
        let Contexts { entries, floor, .. } = contexts;
        let count = contexts.utterances.rows();
        let ends = self.indices(utterances.ends());
        let last =
            |lstm: &Lstm, words| utterances.run(lstm, words, lstm.zero_state(count)).select(0, ends.clone());
        let backwards = words.clone().select(0, self.indices(utterances.reversal()));
        let heard = Tensor::cat(vec![last(&self.forward, words), last(&self.backward, backwards)], 1);
        let heard = self.dropped(heard);

        let packing = Packing::new(&entries.lengths);
        let rows = packing.values(0, |context, entry| entries.row(context)[entry]);
        let heard = heard.select(0, self.indices(rows));
        let speakers = packing.values([1.0f32, 0.0], |context, entry| match floor.row(context)[entry] {
            0 => [1.0, 0.0],
            _ => [0.0, 1.0],
        });
        let speakers = TensorData::new(speakers.concat(), [speakers.len(), 2]);
        let speakers = Tensor::<2>::from_data(speakers, (&self.plain_device(), heard.dtype()));
        let speakers = if self.device().is_autodiff() { Tensor::from_inner(speakers) } else { speakers };
        let x = Tensor::cat(vec![heard, speakers], 1);
        let states = packing.run(&self.context, x, self.context.zero_state(entries.rows()));
        let start = self.start.forward(states.select(0, self.indices(packing.ends())));
        LstmState { hidden: start.clone(), cell: start }
    }

    /// The embeddings of some words, `[N, e]`, dropped in training.
    fn embed(&self, words: Tensor<1, Int>) -> Tensor<2> {
        let rows = self.words.lookup(self.embedding.val(), words.unsqueeze_dim(0));
        self.dropped(rows.squeeze_dim(0))
    }

    /// Drops features in training.
    fn dropped(&self, x: Tensor<2>) -> Tensor<2> {
        let device = x.device();
        if self.dropout == 0.0 || !device.is_autodiff() {
            return x;
        }
        let mask = drop_connect_mask(x.dims(), self.dropout, &device, x.dtype());
        x * mask
    }

    fn plain_device(&self) -> Device {
        self.device().without_autodiff()
    }

    /// Numbers without a part in the graph.
    fn indices(&self, values: Vec<i32>) -> Tensor<1, Int> {
        let length = values.len();
        Tensor::from_data(TensorData::new(values, [length]), &self.plain_device())
    }
}

/// The words of every place.
fn words_of(packing: &Packing, rows: &Padded) -> Vec<i32> {
    packing.values(PAD as i32, |row, step| rows.row(row)[step])
}
