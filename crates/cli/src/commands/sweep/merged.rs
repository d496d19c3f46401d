//! Results of several sweeps together: what is the same in each of them alone may differ between them.

use awd_lstm::TrainConfig;

use crate::args::Overrides;
use crate::commands::sweep::cells::Cell;
use crate::commands::sweep::outcome::{Exact, Outcome};
use crate::commands::sweep::results;
use crate::failure::Failure;
use crate::statistics::grouped;

/// Numbers of parameters no further apart than this factor are one size: a head rarely meets a given number to the digit.
const ONE_SIZE: f64 = 1.05;

/// Where results of the same settings are of mixtures of different numbers of components, gives all of them that number as a setting,
/// `components`; where they still are of models of different sizes, their size, `parameters`; where models of one size differ in
/// procedure, dropout or precision, what differs. A setting of these last kinds that some results have, the others get too, so that the
/// value that all those have in common is a value of it. Trials of one number with other settings are numbered anew.
///
/// # Errors
/// Results of one head, size and settings that differ in more than their seeds, which no mean may be taken of.
pub fn tell_apart(outcomes: &mut [Outcome]) -> Result<(), Failure> {
    let of_one_number = |cell: &Cell| cell.runs.iter().all(|run| run.components == cell.first().components);
    if !Cell::all(outcomes).iter().all(of_one_number) {
        name(outcomes, "components", |outcome| outcome.components);
    }
    let of_one_size = |cell: &Cell| {
        let (least, most) = cell
            .runs
            .iter()
            .map(|run| run.parameters)
            .fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        most as f64 <= ONE_SIZE * least as f64
    };
    if !Cell::all(outcomes).iter().all(of_one_size) {
        let sizes = sizes(outcomes.iter().map(|outcome| outcome.parameters).collect());
        name(outcomes, "parameters", |outcome| {
            let size = sizes.iter().find(|size| (size.least..=size.most).contains(&outcome.parameters));
            Some(size.expect("every number is in a size").name())
        });
    }
    for flag in told_by(outcomes) {
        name(outcomes, flag, |outcome| {
            said(outcome).into_iter().find_map(|(other, value)| (other == flag).then_some(value))
        });
    }
    in_one_order(outcomes);
    number_trials(outcomes);
    for cell in Cell::all(outcomes) {
        let mut exact = cell.runs.iter().filter_map(|run| Some((run.run.as_str(), run.exact.as_deref()?)));
        let Some((first, made)) = exact.next() else { continue };
        if let Some((other, what)) = exact.find_map(|(run, other)| Some((run, difference(made, other)?))) {
            let (head, parameters) = (cell.head(), grouped(cell.first().parameters));
            return Err(format!(
                "results of {head} with {parameters} parameters, `{first}` and `{other}`, have the same settings but differ in \
                 their {what}: draw them apart"
            )
            .into());
        }
    }
    Ok(())
}

/// Gives a setting to the outcomes that have a value and not yet the setting.
fn name<T: ToString>(outcomes: &mut [Outcome], flag: &str, of: impl Fn(&Outcome) -> Option<T>) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.setting(flag).is_none()) {
        if let Some(value) = of(outcome) {
            outcome.settings.insert(0, (flag.into(), value.to_string()));
        }
    }
}

/// What is known of procedure, dropouts and precision; nothing of results of earlier versions.
fn said(outcome: &Outcome) -> Vec<(&'static str, String)> {
    outcome.exact.as_ref().map_or(vec![], |exact| Overrides::of(&exact.model, &exact.train))
}

/// The options of these that are settings of a result, or that results of the same settings differ in.
fn told_by(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut flags = vec![];
    for cell in Cell::all(outcomes) {
        let runs: Vec<_> = cell.runs.iter().map(|run| said(run)).filter(|said| !said.is_empty()).collect();
        let Some((first, others)) = runs.split_first() else { continue };
        let tells = |of: &(&str, String)| {
            cell.first().setting(of.0).is_some() || others.iter().any(|other| !other.contains(of))
        };
        flags.extend(first.iter().filter(|of| tells(of)).map(|(flag, _)| *flag));
    }
    flags.sort_unstable();
    flags.dedup();
    flags
}

/// Brings the settings of all results into the order in which they first appear.
fn in_one_order(outcomes: &mut [Outcome]) {
    let order: Vec<String> = results::axes(outcomes.iter().flat_map(|outcome| &outcome.settings))
        .into_iter()
        .map(|axis| axis.flag)
        .collect();
    for outcome in outcomes {
        outcome.settings.sort_by_key(|(flag, _)| order.iter().position(|other| other == flag));
    }
}

/// Where trials of several searches have the same number, numbers those of each head and budget in the order in which they appear.
fn number_trials(outcomes: &mut [Outcome]) {
    let mut drawn: Vec<&Outcome> = Cell::all(outcomes).iter().map(Cell::first).collect();
    drawn.retain(|trial| trial.trial.is_some());
    let of_one_search = |a: &Outcome, b: &Outcome| a.head_and_budget() == b.head_and_budget();
    let clash = |a: &Outcome, b: &Outcome| of_one_search(a, b) && a.trial == b.trial;
    if !drawn.iter().enumerate().any(|(place, a)| drawn[..place].iter().any(|b| clash(a, b))) {
        return;
    }
    let number = |run: &Outcome| {
        let mut trials = drawn.iter().filter(|trial| of_one_search(trial, run));
        trials.position(|trial| trial.settings == run.settings).map(|place| place + 1)
    };
    let numbers: Vec<Option<usize>> = outcomes.iter().map(number).collect();
    for (outcome, number) in outcomes.iter_mut().zip(numbers) {
        outcome.trial = number;
    }
}

/// What two runs differ in, but for seeds and programs.
fn difference(a: &Exact, b: &Exact) -> Option<&'static str> {
    let same = |a: &TrainConfig, b: &TrainConfig| *a == TrainConfig { seed: a.seed, ..b.clone() };
    let finetuned_same = match (&a.finetuning, &b.finetuning) {
        (Some(a), Some(b)) => same(a, b),
        (a, b) => a.is_none() == b.is_none(),
    };
    [
        (a.corpus == b.corpus && a.text == b.text, "text"),
        (a.model == b.model, "model"),
        (same(&a.train, &b.train), "training"),
        (finetuned_same, "finetuning"),
    ]
    .into_iter()
    .find_map(|(same, what)| (!same).then_some(what))
}

/// Numbers of parameters that are one size.
struct Size {
    least: usize,
    most: usize,
}

impl Size {
    /// Their middle with two digits.
    fn name(&self) -> usize {
        let middle = self.least.midpoint(self.most);
        let unit = 10usize.pow(middle.max(1).ilog10().saturating_sub(1));
        (middle + unit / 2) / unit * unit
    }
}

/// The sizes, in ascending order, that some numbers of parameters fall into.
fn sizes(mut numbers: Vec<usize>) -> Vec<Size> {
    numbers.sort_unstable();
    let mut sizes: Vec<Size> = vec![];
    for number in numbers {
        match sizes.last_mut() {
            Some(size) if number as f64 <= ONE_SIZE * size.most as f64 => size.most = number,
            _ => sizes.push(Size { least: number, most: number }),
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::planned::PARAMETERS;
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
        assert_eq!(outcomes[0].setting("lstm"), Some("128,64"));
        // Once is enough.
        let again = outcomes.clone();
        tell_apart(&mut outcomes).unwrap();
        assert_eq!(outcomes, again);
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

    #[test]
    fn trials_of_several_searches_have_numbers_of_their_own() {
        let of = |head, lr, trial| Outcome { trial: Some(trial), ..of_size(head, &[("lr", lr)], 9) };
        let numbers = |outcomes: &mut [Outcome]| -> Vec<_> {
            tell_apart(outcomes).unwrap();
            outcomes.iter().map(|outcome| outcome.trial).collect()
        };
        let seeds = Outcome { seed: 2, ..of(Mos, "5", 1) };
        let mut outcomes =
            [of(Mos, "5", 1), of(Softmax, "5", 1), of(Mos, "6", 1), seeds.clone(), of(Softmax, "6", 1)];
        assert_eq!(numbers(&mut outcomes), [Some(1), Some(1), Some(2), Some(1), Some(2)]);
        // Those of one search keep theirs, one for each budget too.
        let of_budget = |budget| Outcome {
            trial: Some(3),
            ..of_size(Mos, &[("lr", "5"), (PARAMETERS, budget)], budget.parse().unwrap())
        };
        let mut outcomes = [of(Mos, "5", 3), of(Mos, "6", 7), Outcome { trial: Some(3), ..seeds }];
        assert_eq!(numbers(&mut outcomes), [Some(3), Some(7), Some(3)]);
        let mut outcomes = [of_budget("500000"), of_budget("900000")];
        assert_eq!(numbers(&mut outcomes), [Some(3), Some(3)]);
        // A result that was not drawn has no number.
        let plain = of_size(Mos, &[("lr", "8")], 9);
        let mut outcomes = [of(Mos, "5", 1), plain, of(Mos, "6", 1)];
        assert_eq!(numbers(&mut outcomes), [Some(1), None, Some(2)]);
    }

    #[test]
    fn what_settings_tell_apart_stays() {
        let mut outcomes =
            [of_size(Softmax, &[("lr", "5")], 1_196_112), of_size(Softmax, &[("lr", "6")], 501_552)];
        let before = outcomes.clone();
        tell_apart(&mut outcomes).unwrap();
        assert_eq!(outcomes, before);
    }

    #[test]
    fn names_have_two_digits() {
        let name = |least, most| Size { least, most }.name();
        assert_eq!([name(1_195_942, 1_202_269), name(9, 9), name(0, 0)], [1_200_000, 9, 0]);
        assert_eq!([name(2_049_000, 2_049_000), name(99_600, 99_800)], [2_000_000, 100_000]);
    }
}
