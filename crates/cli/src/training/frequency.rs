//! Whether the words that a head takes for the frequent ones are frequent.

use awd_lstm::ModelConfig;
use runs::data::Corpus;

/// Below this share of what the most frequent words would cover, words are not numbered by frequency.
const ENOUGH: f64 = 0.9;

/// What to say where the words that have gates of their own, or are in no cluster, are not the frequent ones of the training text.
pub fn note(model: &ModelConfig, corpus: &Corpus) -> Option<String> {
    let words = model.favoured_words()?;
    let mut counts = vec![0u64; corpus.vocabulary().len()];
    corpus.train().for_each_block(|block| block.iter().for_each(|word| counts[*word as usize] += 1));
    let total: u64 = counts.iter().sum();
    let share = |counts: &[u64]| counts.iter().take(words).sum::<u64>() as f64 / total.max(1) as f64;
    let first = share(&counts);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let most = share(&counts);
    (first < ENOUGH * most).then(|| {
        format!(
            "note: the {words} words that the head {} takes for frequent are {:.0} % of the training text, its {words} most frequent \
             ones {:.0} %: --vocab-size {} numbers words by frequency",
            model.head,
            100.0 * first,
            100.0 * most,
            counts.len(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::HeadKind;
    use runs::data::Vocabulary;

    /// Word `i` of ten occurs `counts[i]` times.
    fn corpus(counts: [usize; 10]) -> Corpus {
        let mut vocabulary = Vocabulary::new();
        for word in 0..counts.len() {
            vocabulary.insert(&format!("w{word}"));
        }
        let ids = counts.iter().enumerate().flat_map(|(word, count)| vec![word as u32; *count]).collect();
        Corpus::from_ids(vocabulary, ids, vec![0, 1], vec![0, 1]).unwrap()
    }

    fn model(head: HeadKind, cutoffs: Vec<usize>) -> ModelConfig {
        ModelConfig { cutoffs, frequent: Some(3), ..ModelConfig::tiny(head, 10) }
    }

    #[test]
    fn rare_words_in_front_are_noted() {
        let rising = corpus([1, 2, 3, 4, 5, 6, 7, 8, 9, 55]);
        let text = note(&model(HeadKind::Mixtape, vec![]), &rising).unwrap();
        assert_eq!(
            text,
            "note: the 3 words that the head mixtape takes for frequent are 6 % of the training text, its 3 most frequent ones 72 %: \
             --vocab-size 10 numbers words by frequency"
        );
        assert!(
            note(&model(HeadKind::Mos, vec![5]), &rising).unwrap().contains("the 5 words that the head mos")
        );
    }

    #[test]
    fn frequent_words_in_front_and_heads_without_are_not() {
        let falling = corpus([55, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(note(&model(HeadKind::Mixtape, vec![]), &falling), None);
        assert_eq!(note(&model(HeadKind::Adaptive, vec![5]), &falling), None);
        let rising = corpus([1, 2, 3, 4, 5, 6, 7, 8, 9, 55]);
        assert_eq!(note(&model(HeadKind::Softmax, vec![]), &rising), None);
    }
}
