//! Results of several sweeps together: numbers that are the same within each of them may differ between them.

use program::failure::Failure;
use program::statistics::grouped;

use crate::commands::sweep::cells::Cell;
use crate::commands::sweep::outcome::{Exact, Outcome};
use crate::commands::sweep::planned::PARAMETERS;

/// Numbers of parameters no further apart than this factor are one size: a head rarely meets a given number to the digit.
const ONE_SIZE: f64 = 1.05;

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
    use awd_lstm::HeadKind::{self, Mos, Softmax};

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
