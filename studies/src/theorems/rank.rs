//! The softmax bottleneck: a softmax over d dimensions has log-probabilities of rank `d + 1`, or `d + 2` with a bias.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank::HeadConfig;
use highrank::analysis::{RowAnalysis, SpectrumBuilder};
use highrank::logit_map::LogitMap;
use plotters::prelude::SeriesLabelPosition;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::evidence::Evidence;
use super::matrix::Matrix;
use program::chart::{Chart, Scale};
use program::device;
use program::failure::Failure;

/// How many contexts, words and dimensions are tried.
pub struct Sizes {
    /// Number of contexts.
    pub contexts: usize,
    /// V, the number of words.
    pub words: usize,
    /// Values of d.
    pub dims: &'static [usize],
}

impl Default for Sizes {
    fn default() -> Self {
        Self { contexts: 150, words: 100, dims: &[1, 2, 4, 8, 16, 32, 64] }
    }
}

/// Ranks of the log-probabilities of random heads.
#[derive(Debug, Serialize)]
pub struct HeadRanks {
    contexts: usize,
    words: usize,
    heads: Vec<HeadRank>,
}

#[derive(Debug, Serialize)]
struct HeadRank {
    head: &'static str,
    /// What the rank is at most, over d; none for a head without bound.
    beyond_d: Option<usize>,
    /// `(d, rank)`
    ranks: Vec<(usize, usize)>,
}

impl HeadRank {
    fn bound(&self, d: usize, words: usize) -> usize {
        self.beyond_d.map_or(words, |beyond| (d + beyond).min(words))
    }
}

/// Components of the mixtures.
const COMPONENTS: usize = 3;
/// Pieces of the PLIF.
const KNOTS: usize = 50;

impl HeadRanks {
    /// Of heads with normal weights over normal contexts, in f64.
    ///
    /// # Errors
    /// If the program was built without a CPU device, or a decomposition does not converge.
    pub fn measure(sizes: &Sizes, seed: u64) -> Result<Self, Failure> {
        let device = device::open(device::cpu_or_fastest())?;
        let &Sizes { contexts, words, dims } = sizes;
        type Config = fn(usize, usize) -> HeadConfig;
        let kinds: [(&str, Option<usize>, Config); 6] = [
            ("softmax without bias", Some(1), |d, v| HeadConfig::softmax(d, v).with_bias(false)),
            ("softmax", Some(2), HeadConfig::softmax),
            ("moc", Some(2), |d, v| HeadConfig::moc(d, d, v, COMPONENTS)),
            ("mos", None, |d, v| HeadConfig::mos(d, d, v, COMPONENTS)),
            ("sigsoftmax", None, HeadConfig::sigsoftmax),
            ("plif", None, |d, v| HeadConfig::plif(d, v, KNOTS)),
        ];
        let heads = kinds.map(|(head, beyond_d, config)| {
            let of = |&d: &usize| Ok((d, rank(&config(d, words), contexts, seed, &device)?));
            let ranks = dims.iter().map(of).collect::<Result<_, Failure>>()?;
            Ok(HeadRank { head, beyond_d, ranks })
        });
        Ok(Self { contexts, words, heads: heads.into_iter().collect::<Result<_, Failure>>()? })
    }
}

fn rank(config: &HeadConfig, contexts: usize, seed: u64, device: &Device) -> Result<usize, Failure> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut draw = |rows, columns| {
        let data = TensorData::new(Matrix::normal(rows, columns, &mut rng).values, [rows, columns]);
        Tensor::<2>::from_data(data, (device, DType::F64))
    };
    let (d, words) = (config.d_embedding, config.vocab);
    let weight = Param::from_tensor(draw(d, words) / (d as f64).sqrt());
    let bias = config.bias.then(|| Param::from_tensor(draw(1, words).reshape([words])));
    let slopes = draw(1, KNOTS).reshape([KNOTS]);
    let mut head = config.init_from_linear(Linear { weight, bias });
    if let LogitMap::Plif(plif) = &mut head.logit_map {
        // It starts as the identity, which bends nothing.
        plif.raw_slopes = Param::from_tensor(slopes);
    }
    let mut spectrum = SpectrumBuilder::new(words);
    spectrum.add(head.forward(draw(contexts, config.d_hidden) * 3.0))?;
    Ok(spectrum.finish()?.rank(f64::EPSILON))
}

impl Evidence for HeadRanks {
    fn holds(&self) -> bool {
        self.heads.iter().all(|head| {
            let of_bound = |d| head.bound(d, self.words);
            match head.beyond_d {
                // Random weights reach the bound.
                Some(_) => head.ranks.iter().all(|&(d, rank)| rank == of_bound(d)),
                // And leave the bound of the softmax behind from two dimensions on.
                None => head.ranks.iter().all(|&(d, rank)| d < 2 || rank > (d + 2).min(self.words - 1)),
            }
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Softmax bottleneck: rank of the log-probabilities of {} contexts over {} words, random weights\n",
            self.contexts, self.words
        );
        text += &format!("{:<22}{:>8}", "d", "bound");
        for (d, _) in &self.heads[0].ranks {
            text += &format!("{d:>6}");
        }
        for head in &self.heads {
            let bound = head.beyond_d.map_or("none".into(), |beyond| format!("d + {beyond}"));
            text += &format!("\n{:<22}{bound:>8}", head.head);
            for (_, rank) in &head.ranks {
                text += &format!("{rank:>6}");
            }
        }
        text
    }

    fn chart(&self) -> Chart {
        let points = |head: &HeadRank| head.ranks.iter().map(|&(d, rank)| (d as f64, rank as f64)).collect();
        Chart {
            caption: format!("Rank of log-probabilities, {} words", self.words),
            x: ("d", Scale::Logarithmic),
            y: ("rank", Scale::Linear),
            lines: self.heads.iter().map(|head| (head.head.to_string(), points(head))).collect(),
            labels: Some(SeriesLabelPosition::MiddleMiddle),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn softmax_and_moc_stop_at_their_bound_and_the_others_do_not() {
        let sizes = Sizes { contexts: 50, words: 40, dims: &[1, 2, 5, 38, 39] };
        let ranks = HeadRanks::measure(&sizes, 3).unwrap();
        assert!(ranks.holds(), "{}", ranks.text());
        let of = |name: &str| &ranks.heads.iter().find(|head| head.head == name).unwrap().ranks;
        assert_eq!(*of("softmax without bias"), [(1, 2), (2, 3), (5, 6), (38, 39), (39, 40)]);
        assert_eq!(*of("softmax"), [(1, 3), (2, 4), (5, 7), (38, 40), (39, 40)]);
        assert!(of("mos")[1].1 > 10 && of("plif")[1].1 > 10);
        // A bound that is one too small is noticed.
        let HeadRanks { contexts, words, mut heads } = ranks;
        heads[1].beyond_d = Some(1);
        assert!(!HeadRanks { contexts, words, heads }.holds());
    }
}
