use std::collections::HashSet;

use super::*;
use crate::data::tokens;

fn language() -> Language {
    Language::new(LanguageConfig::default()).unwrap()
}

#[test]
fn the_same_configuration_makes_the_same_language() {
    let config = LanguageConfig::default();
    let [one, again, other] = [config.clone(), config.clone(), LanguageConfig { seed: 2, ..config }]
        .map(|config| Language::new(config).unwrap());
    assert_eq!(one.utterances, again.utterances);
    assert_eq!(one.dialogues(5, 1), again.dialogues(5, 1));
    assert_ne!(one.utterances, other.utterances);
    // A dialogue depends on its place, not on how many there are.
    assert_eq!(one.dialogues(3, 1), one.dialogues(5, 1)[..3]);
}

#[test]
fn utterances_are_distinct_and_of_the_vocabulary() {
    let language = language();
    let (utterances, vocabulary) = (&language.utterances, language.vocabulary());
    assert_eq!(utterances.iter().collect::<HashSet<_>>().len(), 120);
    for (number, text) in utterances.iter().enumerate() {
        let words = tokens(text);
        assert!((1..=6).contains(&words.len()));
        assert_eq!(words.join(" "), *text);
        assert_eq!(language.numbers[text], number);
        assert!(words.iter().all(|word| vocabulary.id(word).is_some()));
    }
    assert_eq!(vocabulary.len(), SPECIAL.len() + 60);
}

#[test]
fn dialogues_have_the_turns_and_changes_of_speaker_that_were_asked_for() {
    let language = language();
    let dialogues = language.dialogues(2000, 1);
    let lengths: HashSet<usize> = dialogues.iter().map(|dialogue| dialogue.turns().len()).collect();
    assert_eq!(lengths, (6..=14).collect());
    let changes = dialogues.iter().flat_map(|dialogue| dialogue.turns().windows(2));
    let (same, all) = changes.fold((0.0, 0.0), |(same, all), turns| {
        (same + f64::from(turns[0].speaker == turns[1].speaker), all + 1.0)
    });
    // Five standard deviations.
    assert!((same / all - 0.3).abs() < 5.0 * (0.3 * 0.7 / all).sqrt(), "{same} of {all}");
}

#[test]
fn a_context_has_several_right_answers() {
    let language = language();
    for dialogue in &language.dialogues(50, 1) {
        for turn in 1..=dialogue.turns().len() {
            let answers = language.answers(dialogue, turn).unwrap();
            let total: f64 = answers.iter().map(|answer| answer.probability).sum();
            assert!((total - 1.0).abs() < 1e-12);
            assert!(answers.is_sorted_by(|one, next| one.probability >= next.probability));
            let expected = if turn == 1 { 120..=120 } else { 3..=5 };
            assert!(expected.contains(&answers.len()), "{}", answers.len());
            let spoken = &dialogue.turns()[turn - 1].text;
            assert!(answers.iter().any(|answer| answer.text == spoken));
        }
    }
}

#[test]
fn responses_follow_the_probabilities() {
    let language = language();
    // By what the answers depend on: the words of two utterances and the change of speaker.
    let mut counts: HashMap<Vec<(String, u64)>, HashMap<String, f64>> = HashMap::new();
    for dialogue in &language.dialogues(3000, 1) {
        for turn in 2..=dialogue.turns().len() {
            let answers = language.answers(dialogue, turn).unwrap();
            let key = answers
                .iter()
                .map(|answer| (answer.text.to_string(), answer.probability.to_bits()))
                .collect();
            let spoken = dialogue.turns()[turn - 1].text.clone();
            *counts.entry(key).or_default().entry(spoken).or_default() += 1.0;
        }
    }
    let mut checked = 0;
    for (answers, counts) in counts {
        let all: f64 = counts.values().sum();
        for (text, bits) in answers.iter().filter(|_| all > 200.0) {
            let probability = f64::from_bits(*bits);
            let count = counts.get(text).copied().unwrap_or_default();
            let slack = 5.0 * (all * probability * (1.0 - probability)).sqrt();
            assert!((count - all * probability).abs() < slack, "{count} of {all}, {probability}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn the_floor_and_the_earlier_utterance_matter() {
    let language = language();
    let mut differ = [0, 0];
    for last in 0..12 {
        let answers = |own, earlier| -> HashSet<usize> {
            language.law(Some((last, own)), Some(earlier)).parts.iter().map(|part| part.0).collect()
        };
        differ[0] += usize::from(answers(false, 0) != answers(true, 0));
        differ[1] += usize::from(answers(false, 0) != answers(false, 1));
    }
    assert_eq!(differ, [12, 12]);
}

#[test]
fn a_turn_that_is_not_there_has_no_answers() {
    let language = language();
    let dialogue = &language.dialogues(1, 1)[0];
    let count = dialogue.turns().len();
    assert!(language.answers(dialogue, count).is_some());
    for turn in [0, count + 1, usize::MAX] {
        assert_eq!(language.answers(dialogue, turn), None);
    }
    let turn = |speaker: &str, text: &str| Turn { speaker: speaker.into(), text: text.into() };
    let foreign = Dialogue::new("", vec![turn("A", "hello"), turn("B", "hello")]).unwrap();
    assert!(language.answers(&foreign, 1).is_some());
    assert_eq!(language.answers(&foreign, 2), None);
}

#[test]
fn configurations_are_checked() {
    type Edit = fn(&mut LanguageConfig);
    let wrong: [(Edit, &str); 16] = [
        (|config| config.max_words = 0, "max_words is 0"),
        (|config| config.max_words = 39, "max_words is 39, but must be from 1 to 38"),
        (|config| config.words = 0, "words is 0"),
        (|config| config.words = 100_001, "words is 100001"),
        (|config| config.utterances = 0, "utterances is 0"),
        (
            |config| (config.words, config.max_words) = (2, 3),
            "utterances is 120, but must be from 1 to words",
        ),
        (|config| config.utterances = 100_001, "utterances is 100001"),
        (|config| config.classes = 0, "classes is 0"),
        (|config| config.classes = 121, "classes is 121, but must be from 1 to utterances"),
        (|config| config.answers = 0, "answers is 0"),
        (|config| config.earlier_answers = 121, "earlier_answers is 121"),
        (|config| config.earlier = 1.0, "earlier is 1"),
        (|config| config.goes_on = f64::NAN, "goes_on is NaN"),
        (|config| config.goes_on = 1.1, "goes_on is 1.1"),
        (|config| config.min_turns = 1, "min_turns is 1"),
        (|config| config.max_turns = 5, "max_turns is 5, but must be at least min_turns"),
    ];
    for (edit, expected) in wrong {
        let mut config = LanguageConfig::default();
        edit(&mut config);
        let message = Language::new(config).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let text = serde_json::to_string(&LanguageConfig::default()).unwrap();
    assert_eq!(serde_json::from_str::<LanguageConfig>(&text).unwrap(), LanguageConfig::default());
}
