//! Results of several sweeps together: numbers that are the same within each of them may differ between them.

use std::collections::HashSet;

use awd_lstm::HeadKind;
use program::args::{Form, Knobs};
use program::failure::Failure;
use program::statistics::grouped;
use runs::text::comma_list;
use serde_json::{Value, json};

use crate::args::{LstmKnobs, missing_part};
use crate::commands::sweep::cells::Cell;
use crate::commands::sweep::grid::{Axis, number};
use crate::commands::sweep::outcome::{Exact, Outcome};
use crate::commands::sweep::plan::PARAMETERS;

/// Numbers of parameters no further apart than this factor are one size: a head rarely meets a given number to the digit.
const ONE_SIZE: f64 = 1.05;

/// Sizes that may have been solved for.
const SIZES: [&str; 4] = ["d-embedding", "lstm", "layers", "last-lstm"];

/// The results, each with the settings that others have and its head has too: what varies in one sweep is fixed in another, or for one
/// head. Sizes that differ without being set were solved for and are no setting.
pub fn filled(outcomes: &[Outcome]) -> Vec<Outcome> {
    let axes = Axis::all(outcomes.iter().flat_map(|outcome| &outcome.settings));
    let mut filled = outcomes.to_vec();
    for axis in &axes {
        let flag = axis.flag.as_str();
        let lacks =
            |outcome: &Outcome| outcome.setting(flag).is_none() && missing_part(outcome.head, flag).is_none();
        let found: Vec<Option<String>> =
            outcomes.iter().map(|outcome| lacks(outcome).then(|| value(outcome, axis)).flatten()).collect();
        let is_solved = |head: HeadKind| {
            let of_head = outcomes.iter().zip(&found).filter(|(outcome, _)| outcome.head == head);
            let values: HashSet<&String> = of_head.filter_map(|(_, value)| value.as_ref()).collect();
            SIZES.contains(&flag) && values.len() > 1
        };
        let solved: Vec<HeadKind> = HeadKind::ALL.iter().copied().filter(|head| is_solved(*head)).collect();
        for (outcome, value) in filled.iter_mut().zip(&found) {
            if let (Some(value), false) = (value, solved.contains(&outcome.head)) {
                outcome.settings.push((flag.into(), value.clone()));
            }
        }
    }
    for outcome in &mut filled {
        outcome.settings.sort_by_key(|(flag, _)| axes.iter().position(|axis| axis.flag == *flag));
    }
    filled
}

/// The value of a setting in what makes a run, written as the axis writes it; none where that does not say.
fn value(outcome: &Outcome, axis: &Axis) -> Option<String> {
    let Exact { model, train, .. } = outcome.exact.as_deref()?;
    let text = match axis.flag.as_str() {
        "d-embedding" => model.d_embedding.to_string(),
        "lstm" => comma_list(&model.lstm_sizes).replace(' ', ""),
        "layers" => model.lstm_sizes.len().to_string(),
        "last-lstm" => model.lstm_sizes.last()?.to_string(),
        flag => {
            let knob = LstmKnobs::ALL.iter().find(|knob| knob.name == flag)?;
            let all = json!({ "model": model, "train": train });
            match (knob.place.split('.').try_fold(&all, |value, key| value.get(key))?, knob.form) {
                (Value::Null, _) | (_, Form::Minutes) => return None,
                (Value::Bool(is), Form::Inverse) => (!is).to_string(),
                (Value::String(text), _) => text.clone(),
                (Value::Array(items), _) => comma_list(items).replace(' ', ""),
                (value, _) => value.to_string().trim_end_matches(".0").to_string(),
            }
        }
    };
    let same = |other: &&String| number(other).map_or(**other == text, |other| Some(other) == number(&text));
    Some(axis.values.iter().find(same).cloned().unwrap_or(text))
}

/// Takes out the results of a head, settings, size and seed that an earlier one has, and returns how many they are: no run may be counted
/// twice.
pub fn take_out_repeated(outcomes: &mut Vec<Outcome>) -> usize {
    let (before, mut seen) = (outcomes.len(), HashSet::new());
    outcomes.retain(|it| seen.insert((it.head, it.settings.clone(), it.parameters, it.seed)));
    before - outcomes.len()
}

/// Where results of the same head and settings are of different numbers of components, gives all mixtures that number as a setting,
/// `components`; where they still are of different sizes, gives all models their size, `parameters`. Results of one head, size and settings
/// that differ in more than their seeds are refused: no mean may be taken of them.
pub fn tell_apart(outcomes: &mut [Outcome]) -> Result<(), Failure> {
    let differ = |outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64, most: f64| {
        Cell::all(outcomes).iter().any(|cell| {
            let values = || cell.runs.iter().map(|run| of(run));
            values().fold(0.0, f64::max) > most * values().fold(f64::INFINITY, f64::min)
        })
    };
    if differ(outcomes, &|run| run.components.unwrap_or(0) as f64, 1.0) {
        name(outcomes, "components", |outcome| outcome.components);
    }
    if differ(outcomes, &|run| run.parameters as f64, ONE_SIZE) {
        let mut all: Vec<usize> = outcomes.iter().map(|outcome| outcome.parameters).collect();
        all.sort_unstable();
        name(outcomes, PARAMETERS, |outcome| Some(size(outcome.parameters, &all)));
    }
    for cell in Cell::all(outcomes) {
        let mut exact = cell.runs.iter().filter_map(|run| Some((run, run.exact.as_deref()?)));
        let Some((first, made)) = exact.next() else { continue };
        if let Some((other, _)) = exact.find(|(_, other)| !is_same(made, other)) {
            let (head, parameters) = (cell.head(), grouped(first.parameters));
            return Err(format!(
                "results of {head} with {parameters} parameters, `{}` and `{}`, have the same settings but differ in more than their \
                 seeds: draw them apart",
                first.run, other.run
            )
            .into());
        }
    }
    Ok(())
}

/// Gives a setting to the outcomes that have a value and not yet the setting.
fn name(outcomes: &mut [Outcome], flag: &str, of: impl Fn(&Outcome) -> Option<usize>) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.setting(flag).is_none()) {
        if let Some(value) = of(outcome) {
            outcome.settings.insert(0, (flag.into(), value.to_string()));
        }
    }
}

/// Whether two runs differ in nothing but seeds and programs.
fn is_same(a: &Exact, b: &Exact) -> bool {
    let seedless = |exact: &Exact| {
        let mut exact = exact.clone();
        exact.train.seed = 0;
        exact.finetuning.iter_mut().for_each(|train| train.seed = 0);
        (exact.text, exact.corpus, exact.model, exact.train, exact.finetuning)
    };
    seedless(a) == seedless(b)
}

/// The middle, with two digits, of the numbers that are one size with `number`, of `all` in ascending order.
fn size(number: usize, all: &[usize]) -> usize {
    let near = |pair: &[usize]| pair[1] as f64 <= ONE_SIZE * pair[0] as f64;
    let group = all.chunk_by(|a, b| near(&[*a, *b])).find(|group| group.contains(&number));
    let group = group.expect("every number is among all");
    let middle = group[0].midpoint(group[group.len() - 1]);
    let unit = 10usize.pow(middle.max(1).ilog10().saturating_sub(1));
    (middle + unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::table::tests::outcome;
    use awd_lstm::HeadKind::{Mos, Softmax};
    use awd_lstm::{Preset, TrainConfig};
    use runs::data::{Fingerprint, Part, TextConfig};

    fn of_size(head: HeadKind, settings: &[(&str, &str)], parameters: usize) -> Outcome {
        Outcome { parameters, ..outcome(head, settings, 1, 10.0) }
    }

    #[test]
    fn sizes_are_told_apart_where_the_settings_do_not() {
        let lstm = [("lstm", "128,64")];
        let mut outcomes = [
            of_size(Softmax, &lstm, 1_196_112),
            of_size(Softmax, &lstm, 501_552),
            of_size(Mos, &[], 1_202_269),
            of_size(Mos, &[("parameters", "490000")], 495_002),
        ];
        tell_apart(&mut outcomes).unwrap();
        let sizes: Vec<_> = outcomes.iter().map(|outcome| outcome.setting("parameters").unwrap()).collect();
        assert_eq!(sizes, ["1200000", "500000", "1200000", "490000"]);
        // Once is enough.
        let again = outcomes.clone();
        tell_apart(&mut outcomes).unwrap();
        assert_eq!(outcomes, again);
        // What settings tell apart stays.
        let mut outcomes =
            [of_size(Softmax, &[("lr", "5")], 1_196_112), of_size(Softmax, &[("lr", "6")], 501_552)];
        let before = outcomes.clone();
        tell_apart(&mut outcomes).unwrap();
        assert_eq!(outcomes, before);
        assert_eq!([size(9, &[9]), size(0, &[0]), size(99_800, &[99_600, 99_800])], [9, 0, 100_000]);
    }

    /// A result of a run with this learning rate and precision.
    fn made(head: HeadKind, settings: &[(&str, &str)], lr: f64) -> Outcome {
        let part: Part = serde_json::from_value(json!({ "length": 9, "sha256": "" })).unwrap();
        let exact = Exact {
            versions: json!({}),
            preset: "small".into(),
            device: "flex".into(),
            text: TextConfig::default(),
            corpus: Fingerprint {
                vocabulary: part.clone(),
                train: part.clone(),
                valid: part.clone(),
                test: part,
            },
            model: Preset::Small.model(head, 50),
            train: TrainConfig { lr, ..Preset::Small.train() },
            finetuning: None,
        };
        Outcome { exact: Some(Box::new(exact)), ..outcome(head, settings, 1, 10.0) }
    }

    #[test]
    fn what_one_sweep_varied_is_a_setting_of_all() {
        let outcomes = filled(&[
            made(Mos, &[("lr", "5"), ("components", "3")], 5.0),
            made(Softmax, &[], 5.0),
            made(Mos, &[("components", "3")], 0.5),
            outcome(Softmax, &[], 2, 10.0),
        ]);
        let settings = |index: usize| -> Vec<_> {
            outcomes[index].settings.iter().map(|(flag, value)| (flag.as_str(), value.as_str())).collect()
        };
        assert_eq!(settings(0), [("lr", "5"), ("components", "3")]);
        // As others write it; a softmax has no components.
        assert_eq!(settings(1), [("lr", "5")]);
        assert_eq!(settings(2), [("lr", "0.5"), ("components", "3")]);
        // Nobody knows what made it.
        assert!(settings(3).is_empty());
    }

    #[test]
    fn no_result_is_counted_twice() {
        let result = |seed| outcome(Mos, &[("lr", "5")], seed, 10.0);
        let mut outcomes = vec![result(1), result(2), result(1), of_size(Mos, &[("lr", "5")], 9)];
        assert_eq!(take_out_repeated(&mut outcomes), 1);
        assert_eq!(outcomes.iter().map(|outcome| outcome.seed).collect::<Vec<_>>(), [1, 2, 1]);
    }

    #[test]
    fn numbers_of_components_are_told_apart() {
        let of = |components| Outcome { components: Some(components), ..of_size(Mos, &[], 1_200_000) };
        let mut outcomes = [of(1), of(5), of(5), of_size(Softmax, &[], 1_200_000)];
        tell_apart(&mut outcomes).unwrap();
        let settings = outcomes.each_ref().map(|outcome| outcome.setting("components"));
        assert_eq!(settings, [Some("1"), Some("5"), Some("5"), None]);
        // Their sizes differ for that alone.
        let mut outcomes = [of(1), Outcome { parameters: 1_400_000, ..of(10) }];
        tell_apart(&mut outcomes).unwrap();
        assert_eq!(outcomes[1].settings, [("components".to_string(), "10".to_string())]);
    }
}
