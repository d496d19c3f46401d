use burn::nn::LstmState;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::HeadConfig;
use crate::error::HeadError;

const MASKED: f64 = f64::NEG_INFINITY;

/// In f64, of one width.
fn rows(rows: impl IntoIterator<Item = Vec<f64>>) -> Tensor<2> {
    let rows: Vec<Vec<f64>> = rows.into_iter().collect();
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), (&Device::flex(), DType::F64))
}

/// A first-order chain: log-probabilities of the first word, and of each word after each.
struct Chain {
    start: Vec<f64>,
    transition: Vec<Vec<f64>>,
}

impl Chain {
    /// Multiples of a half, so that there are many ties, with some words masked.
    fn random(vocab: usize, seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut row = || -> Vec<f64> {
            let word = |x: u32| if x == 0 { MASKED } else { -f64::from(x) / 2.0 };
            (0..vocab).map(|_| word(rng.random_range(0..8))).collect()
        };
        let start = row();
        Self { start, transition: (0..vocab).map(|_| row()).collect() }
    }

    fn row(&self, words: &[usize]) -> &[f64] {
        words.last().map_or(&self.start, |&word| &self.transition[word])
    }

    fn rows(&self, live: &LiveHypotheses) -> Tensor<2> {
        rows(live.rows.iter().map(|row| self.row(&row.words).to_vec()))
    }

    fn search(&self, search: &BeamSearch) -> Vec<Hypothesis> {
        search.search(1, (), |live, ()| (self.rows(live), ())).unwrap().remove(0)
    }

    /// By the definition: every candidate is made and sorted.
    fn by_definition(&self, search: &BeamSearch) -> Vec<Hypothesis> {
        let mut live: Vec<(f64, Vec<usize>)> = vec![(0.0, vec![])];
        let mut pool: Vec<(f64, Vec<usize>)> = vec![];
        for _ in 0..search.max_length {
            let mut candidates = vec![];
            if search.finished == FinishedHypotheses::KeepPlace {
                candidates.append(&mut pool);
            }
            for (sum, words) in &live {
                for (word, log_prob) in self.row(words).iter().enumerate() {
                    if *log_prob > MASKED && !search.forbidden.contains(&word) {
                        candidates.push((sum + log_prob, [words.as_slice(), &[word]].concat()));
                    }
                }
            }
            candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            if search.finished == FinishedHypotheses::KeepPlace {
                candidates.truncate(search.width);
            }
            live.clear();
            for (sum, words) in candidates {
                if live.len() == search.width {
                    break;
                }
                match words.last() == Some(&search.eos) {
                    true => pool.push((sum, words)),
                    false => live.push((sum, words)),
                }
            }
        }
        pool.extend(live);
        let mut found: Vec<Hypothesis> = pool
            .into_iter()
            .map(|(log_prob, words)| {
                let score = log_prob / (words.len() as f64).powf(search.alpha);
                let finished = words.last() == Some(&search.eos);
                Hypothesis { words, log_prob, score, finished }
            })
            .collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.words.cmp(&b.words)));
        found.truncate(search.n_best);
        found
    }
}

/// The rows of chains, one a context.
fn rows_of(chains: &[Chain], live: &LiveHypotheses) -> Tensor<2> {
    rows(live.rows.iter().map(|row| chains[row.context].row(&row.words).to_vec()))
}

/// Many widths and options for chains of six words.
fn searches() -> Vec<BeamSearch> {
    let mut searches = vec![];
    for (width, max_length) in [(1, 4), (2, 5), (3, 4), (5, 3), (40, 3)] {
        for finished in [FinishedHypotheses::LeaveBeam, FinishedHypotheses::KeepPlace] {
            let search = BeamSearch::new(width, max_length, 2).with_n_best(6).with_finished(finished);
            searches.push(search.clone());
            searches.push(search.clone().with_alpha(0.7));
            searches.push(search.with_forbidden(vec![0, 5]));
        }
    }
    searches
}

fn words(found: &[Hypothesis]) -> Vec<Vec<usize>> {
    found.iter().map(|hypothesis| hypothesis.words.clone()).collect()
}

#[test]
fn a_search_follows_the_definition() {
    for seed in 0..40 {
        let chain = Chain::random(6, seed);
        for search in searches() {
            assert_eq!(chain.search(&search), chain.by_definition(&search), "seed {seed}, {search:?}");
        }
    }
}

/// What a hypothesis has read, as a state: row by row it must be the words before the last.
struct Read(Vec<Vec<usize>>);

impl BeamState for Read {
    fn select(self, rows: &[usize]) -> Self {
        Self(rows.iter().map(|&row| self.0[row].clone()).collect())
    }
}

#[test]
fn contexts_together_give_what_each_gives_alone_and_states_follow_them() {
    let chains: Vec<Chain> = (100..105).map(|seed| Chain::random(6, seed)).collect();
    for search in searches() {
        let mut steps = 0;
        let start = || Read(vec![vec![]; chains.len()]);
        let found = search.search(chains.len(), (start(), Some(start())), |live, (read, twin)| {
            steps += 1;
            assert_eq!(twin.unwrap().0, read.0);
            let mut read = read.0;
            for (read, LiveHypothesis { words, .. }) in read.iter_mut().zip(&live.rows) {
                assert_eq!(words.len() + 1, steps);
                let before = words.len().saturating_sub(1);
                assert_eq!(read, &words[..before]);
                read.extend(&words[before..]);
            }
            (rows_of(&chains, live), (Read(read.clone()), Some(Read(read))))
        });
        let alone: Vec<_> = chains.iter().map(|chain| chain.search(&search)).collect();
        assert_eq!(found.unwrap(), alone, "{search:?}");
        assert!(steps <= search.max_length);
    }
    let none = BeamSearch::new(2, 3, 0).search(0, (), |_, ()| unreachable!());
    assert_eq!(none, Ok(vec![]));
}

#[test]
fn a_wider_beam_finds_what_greedy_search_misses() {
    let chain = Chain {
        start: vec![MASKED, -0.1, -0.5],
        transition: vec![vec![MASKED; 3], vec![-2.0, -2.0, -2.0], vec![-0.25, -3.0, -3.0]],
    };
    assert_eq!(chain.search(&BeamSearch::new(1, 2, 0))[0].words, [1, 0]);
    let found = chain.search(&BeamSearch::new(2, 2, 0).with_n_best(2));
    assert_eq!(words(&found), [[2, 0], [1, 0]]);
    assert_eq!((found[0].log_prob, found[0].finished), (-0.75, true));
}

#[test]
fn length_normalisation_changes_the_order_alone() {
    let chain = Chain { start: vec![-2.0, -0.5], transition: vec![vec![MASKED; 2], vec![-2.0, -0.5]] };
    let found = |alpha| chain.search(&BeamSearch::new(2, 3, 0).with_n_best(9).with_alpha(alpha));
    assert_eq!(words(&found(0.0)), [vec![1, 1, 1], vec![0], vec![1, 0], vec![1, 1, 0]]);
    let mean = found(1.0);
    assert_eq!(words(&mean), [vec![1, 1, 1], vec![1, 1, 0], vec![1, 0], vec![0]]);
    assert_eq!((mean[1].log_prob, mean[1].score), (-3.0, -1.0));
    assert!(!mean[0].finished && mean[1].finished);
}

#[test]
fn finished_hypotheses_leave_or_keep_their_place() {
    // After two words at most, everything is worse than what has finished.
    let chain = Chain {
        start: vec![-0.5, -1.0, -1.5],
        transition: vec![vec![MASKED; 3], vec![-1.0, -4.0, -4.0], vec![-1.0, -4.0, -4.0]],
    };
    let search = BeamSearch::new(2, 4, 0).with_n_best(20);
    let left = chain.search(&search);
    assert_eq!(left.len(), 1 + 2 + 2 + 2 + 2);
    assert_eq!(left.iter().filter(|hypothesis| !hypothesis.finished).count(), 2);
    let mut steps = 0;
    let kept = search.with_finished(FinishedHypotheses::KeepPlace).search(1, (), |live, ()| {
        steps += 1;
        (chain.rows(live), ())
    });
    let kept = kept.unwrap();
    assert_eq!((words(&kept[0]), steps), (vec![vec![0], vec![1, 0]], 2));
}

#[test]
fn a_search_ends_where_nothing_can_come() {
    let chain = Chain { start: vec![-1.0, -1.0], transition: vec![vec![MASKED; 2], vec![MASKED; 2]] };
    let found = chain.search(&BeamSearch::new(3, 5, 0).with_n_best(4));
    assert_eq!(words(&found), [[0]]);
    let nothing = Chain { start: vec![MASKED; 2], ..chain };
    assert!(nothing.search(&BeamSearch::new(3, 5, 0)).is_empty());
}

#[test]
fn bad_options_are_refused() {
    let chain = Chain::random(4, 1);
    let refused =
        |search: BeamSearch| search.search(1, (), |live, ()| (chain.rows(live), ())).unwrap_err().to_string();
    let good = BeamSearch::new(2, 3, 0);
    assert_eq!(refused(good.clone().with_n_best(0)), "n_best is 0, expected at least 1");
    assert_eq!(refused(BeamSearch::new(0, 3, 0)), "width is 0, expected at least 1");
    assert_eq!(refused(BeamSearch::new(2, 0, 0)), "max_length is 0, expected at least 1");
    for alpha in [-0.5, f64::NAN, f64::INFINITY] {
        let message = refused(good.clone().with_alpha(alpha));
        assert_eq!(message, format!("alpha is {alpha}, expected a finite number of at least 0"));
    }
    assert_eq!(
        refused(BeamSearch::new(2, 3, 4)),
        "eos is 4, expected a word below the size of the vocabulary"
    );
    assert!(refused(good.clone().with_forbidden(vec![1, 9])).starts_with("forbidden is 9"));
}

#[test]
fn bad_steps_are_refused() {
    let search = BeamSearch::new(2, 3, 0);
    let first = |given: Vec<Vec<f64>>| search.search(2, (), |_, ()| (rows(given.clone()), ())).unwrap_err();
    assert_eq!(
        first(vec![vec![-1.0, -1.0]]).to_string(),
        "log-probabilities of a step has shape [1, 2], expected [2, V], a row for each live hypothesis"
    );
    assert!(matches!(first(vec![vec![-1.0; 3]; 3]), HeadError::Shape { .. }));
    let nan = vec![vec![-1.0; 2], vec![-1.0, f64::NAN]];
    assert_eq!(first(nan), HeadError::NotANumber { token: 1 });
    let infinite = vec![vec![f64::INFINITY, -1.0], vec![-1.0; 2]];
    assert_eq!(first(infinite), HeadError::NotANumber { token: 0 });
}

fn tensor<const D: usize>(shape: [usize; D], seed: u64, scale: f64) -> Tensor<D> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| scale * (rng.random::<f64>() - 0.5)).collect();
    let data = TensorData::new(values, shape.to_vec());
    Tensor::from_data(data, (&Device::flex(), DType::F64))
}

#[test]
fn tables_give_the_same_in_every_float_type() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for search in searches() {
            let chain = Chain::random(6, 3);
            let found = search.search(1, (), |live, ()| (chain.rows(live).cast(dtype), ()));
            assert_eq!(found.unwrap()[0], chain.search(&search), "{dtype:?}, {search:?}");
        }
    }
}

#[test]
fn a_head_is_searched_as_its_log_probabilities_are() {
    let device = Device::flex();
    let head = HeadConfig::mos(4, 5, 30, 3).init(&device);
    let cast = |tensor: Tensor<2>| tensor.cast(DType::F32);
    let (embedding, contexts) = (cast(tensor([30, 4], 1, 4.0)), cast(tensor([3, 4], 2, 4.0)));
    let hidden = |live: &LiveHypotheses, state: Tensor<2>| {
        (state + embedding.clone().select(0, live.last_words(0, &device))).tanh()
    };
    for search in [
        BeamSearch::new(4, 6, 1).with_n_best(4),
        BeamSearch::new(4, 6, 1).with_n_best(4).with_forbidden(vec![0, 7, 8]).with_alpha(1.0),
        BeamSearch::new(40, 3, 1).with_n_best(9).with_finished(FinishedHypotheses::KeepPlace),
    ] {
        let found = head.beam_search(&search, 3, contexts.clone(), |live, state| {
            let hidden = hidden(live, state);
            (hidden.clone(), hidden)
        });
        let want = search.search(3, contexts.clone(), |live, state| {
            let hidden = hidden(live, state);
            (head.forward(hidden.clone()), hidden)
        });
        assert_eq!(found, want, "{search:?}");
        let found = found.unwrap();
        // Each sum is that of the words read one after the other.
        for (context, found) in found.iter().enumerate() {
            for hypothesis in found {
                assert!(!hypothesis.words.iter().any(|word| search.forbidden.contains(word)));
                let mut state = contexts.clone().narrow(0, context, 1);
                let (mut last, mut sum) = (0, 0.0);
                for &word in &hypothesis.words {
                    let input = Tensor::<1, Int>::from_data([last as i64], &device);
                    state = (state + embedding.clone().select(0, input)).tanh();
                    let log_probs = head.forward(state.clone()).into_data();
                    sum += log_probs.iter::<f64>().nth(word).unwrap();
                    last = word;
                }
                assert!((sum - hypothesis.log_prob).abs() < 1e-5, "{sum} {hypothesis:?}");
            }
        }
    }
}

#[test]
fn misuse_of_a_head_is_refused() {
    let device = Device::flex();
    let head = HeadConfig::softmax(4, 6).init(&device);
    let state = || Tensor::<2>::zeros([1, 4], &device);
    let refused = |search: &BeamSearch, step: &dyn Fn(Tensor<2>) -> Tensor<2>| {
        head.beam_search(search, 1, state(), |_, state| (step(state.clone()), state)).unwrap_err()
    };
    let good = BeamSearch::new(2, 3, 0);
    assert!(refused(&BeamSearch::new(0, 3, 0), &|state| state).to_string().contains("width"));
    assert!(refused(&BeamSearch::new(2, 3, 6), &|state| state).to_string().contains("eos is 6"));
    let narrow = refused(&good, &|state| state.slice([0..1, 0..3]));
    assert!(narrow.to_string().contains("hidden has shape [1, 3]"), "{narrow}");
    let two = refused(&good, &|state| state.repeat_dim(0, 2));
    assert!(two.to_string().contains("log-probabilities of a step has shape [2, 3]"), "{two}");
    assert_eq!(refused(&good, &|state| state * f64::NAN), HeadError::NotANumber { token: 0 });
    let tied = HeadConfig::softmax(4, 6).with_tied(true).init(&device);
    let unbound = tied.beam_search(&good, 1, state(), |_, state| (state.clone(), state));
    assert_eq!(unbound.unwrap_err(), HeadError::MissingDecoder);
}

#[test]
fn masked_and_padding_words_never_come() {
    let device = Device::flex();
    let config = HeadConfig::softmax(4, 6).with_vocab_multiple(8).with_masked_words(vec![1, 4]);
    let head = config.init(&device);
    let state = tensor([2, 4], 5, 1.0).cast(DType::F32);
    let search = BeamSearch::new(50, 2, 0).with_n_best(100);
    for found in head.beam_search(&search, 2, state, |_, state| (state.clone(), state)).unwrap() {
        // `0`, and `2`, `3`, `5` with any of the four.
        assert_eq!(found.len(), 1 + 3 * 4);
        assert!(found.iter().flat_map(|h| &h.words).all(|word| [0, 2, 3, 5].contains(word)));
    }
}

#[test]
fn tensor_states_are_selected_by_their_first_dimension() {
    let values = |tensor: Tensor<2>| tensor.into_data().iter::<f64>().collect::<Vec<_>>();
    let state = tensor([3, 2], 9, 1.0);
    let want = values(state.clone());
    let picked = |rows: &[usize]| values(BeamState::select(state.clone(), rows));
    assert_eq!(picked(&[0, 1, 2]), want);
    assert_eq!(picked(&[2, 0, 0, 1]), [&want[4..], &want[..2], &want[..2], &want[2..4]].concat());
    assert_eq!(picked(&[0]), want[..2]);
    let ids = Tensor::<1, Int>::from_data([7, 8, 9], &Device::flex());
    let lstm = LstmState::new(state.clone(), state.clone() * 2.0);
    let (layers, ids, ()) = (vec![lstm], ids, ()).select(&[2, 1]);
    assert_eq!(ids.into_data().iter::<i64>().collect::<Vec<_>>(), [9, 8]);
    assert_eq!(values(layers[0].cell.clone()), [&want[4..], &want[2..4]].concat());
    assert_eq!(values(layers[0].hidden.clone() / 2.0), values(layers[0].cell.clone()));
}

#[test]
fn live_words_are_read_as_tensors() {
    let device = Device::flex();
    let ints = |data: TensorData| data.iter::<i64>().collect::<Vec<_>>();
    let chain = Chain { start: vec![MASKED, -1.0, -2.0], transition: vec![vec![-9.0, -1.0, -2.0]; 3] };
    let found = BeamSearch::new(2, 2, 0).search(1, (), |live, ()| {
        let (last, all) = (live.last_words(5, &device), live.all_words(5, &device));
        let (want_last, want_all, shape) = match live.rows[0].words.len() {
            0 => (vec![5], vec![5], [1, 1]),
            _ => (vec![1, 2], vec![5, 1, 5, 2], [2, 2]),
        };
        assert_eq!(all.dims(), shape);
        assert_eq!((ints(last.into_data()), ints(all.into_data())), (want_last, want_all));
        (chain.rows(live), ())
    });
    assert!(found.is_ok());
}
