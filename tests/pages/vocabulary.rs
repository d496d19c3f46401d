//! The table of what ranks that share a vocabulary hold and exchange, on paper.

/// Bytes of a number.
const F32: f64 = 4.0;
/// Weights, gradient, averages and the best model so far.
const COPIES: f64 = 4.0;

/// A model as far as ranks exchange something of it: a softmax tied to the embedding above three LSTM layers of its width.
struct Model {
    vocab: f64,
    width: f64,
    components: f64,
    /// Tokens of a group in a step.
    tokens: f64,
}

const LARGE: Model = Model { vocab: 1e6, width: 4096.0, components: 1.0, tokens: 2100.0 };

impl Model {
    /// Parameters with a row for each word.
    fn rows(&self) -> f64 {
        self.vocab * (self.width + 1.0)
    }

    /// All other parameters.
    fn others(&self) -> f64 {
        3.0 * 4.0 * self.width * (2.0 * self.width + 2.0)
    }

    /// Bytes of the rows of one of `p` ranks.
    fn memory(&self, p: f64) -> f64 {
        COPIES * F32 * self.rows() / p
    }

    /// Bytes that a token costs each of the `p` ranks of a group in a step.
    fn of_token(&self, p: f64) -> f64 {
        let summed = F32 * self.width * (1.0 + self.components);
        both_ways(p) * summed + (p - 1.0) * 2.0 * F32 * self.components
    }

    /// Bytes that each of `groups` × `p` ranks receives in a step.
    fn exchanged(&self, groups: f64, p: f64) -> f64 {
        self.of_token(p) * self.tokens + both_ways(groups) * F32 * (self.rows() / p + self.others())
    }

    /// The tokens of a step up to which `p` ranks exchange less as one group than as groups of one.
    fn pays_up_to(&self, p: f64) -> f64 {
        self.exchanged(p, 1.0) / self.of_token(p)
    }
}

/// How often a sum over ranks receives its values: all-to-all and all-gather.
fn both_ways(ranks: f64) -> f64 {
    2.0 * (ranks - 1.0) / ranks
}

/// Bytes in three digits.
fn bytes(count: f64) -> String {
    let (value, unit) = if count >= 1e9 { (count / 1e9, "GB") } else { (count / 1e6, "MB") };
    let digits = [10.0, 100.0].iter().filter(|limit| value < **limit).count();
    format!("{value:.digits$} {unit}")
}

/// A number of thousands.
fn thousands(count: f64) -> String {
    format!("{:.0},000", count / 1e3)
}

/// For numbers of ranks, what each holds and receives.
pub fn shared_vocabulary() -> Vec<String> {
    let model = &LARGE;
    let line = |ranks: f64| {
        let [one, group, all] = [1.0, 8.0, ranks].map(|p| bytes(model.exchanged(ranks / p, p)));
        let memory = bytes(model.memory(ranks));
        format!("| {ranks} | {memory} | {one} | {group} | {all} | {} |", thousands(model.pays_up_to(ranks)))
    };
    (3..=10).map(|power| line(f64::from(1 << power))).collect()
}

#[test]
fn a_single_rank_holds_all_and_exchanges_nothing() {
    assert_eq!(bytes(LARGE.memory(1.0)), "65.6 GB");
    assert_eq!(LARGE.exchanged(1.0, 1.0), 0.0);
    // Of each token two ranks send each other half of both sums, twice, and two numbers a component.
    let mixture = Model { vocab: 10.0, width: 3.0, components: 2.0, tokens: 5.0 };
    assert_eq!(mixture.exchanged(1.0, 2.0), 5.0 * (4.0 * (3.0 + 2.0 * 3.0) + 8.0 * 2.0));
}
