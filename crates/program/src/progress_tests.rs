//! What is told of a training, and when.

use super::*;

#[test]
fn no_time_is_too_long() {
    let second = Duration::from_secs(1);
    assert_eq!(time_left(second, 0.25, 0.75), Duration::from_secs(3));
    assert_eq!(time_left(second, 1e-300, 1.0), Duration::MAX);
    assert!(short(Duration::MAX).contains(" d "));
}

#[test]
fn times_have_two_units() {
    let text = |seconds| short(Duration::from_secs(seconds));
    assert_eq!([7, 61, 3600, 90_061].map(text), ["7 s", "1 min 01 s", "1 h 00 min", "1 d 01 h"]);
}

#[test]
fn numbers_have_three_digits() {
    let numbers = [14.2, 0.212_66, 0.001_234, 1.2e-6, 3.456e-9, 123.4, 98_765.0, 0.0, f64::INFINITY];
    let texts = ["14.2", "0.213", "0.00123", "0.00000120", "3.46e-9", "123", "98765", "0", "inf"];
    assert_eq!(numbers.map(three_digits), texts);
}

fn interval() -> StepMetrics {
    StepMetrics {
        epoch: 3,
        epochs: 40,
        step: 200,
        steps: 664,
        tokens: 1_000_000,
        seconds: 300.0,
        tokens_per_s: 8123.4,
        lr: 14.2,
        nll: 2.0,
        ppl: 7.389,
        gradient_norm: 0.2127,
        clipped: 0.35,
        latent_share: None,
        prior_cv: None,
        ar: Some(0.0312),
        tar: Some(0.0),
        averaging: Some(true),
        share: 0.5,
        waiting: None,
    }
}

#[test]
fn a_line_says_what_steps_jsonl_says() {
    let interval = interval();
    let mut progress = Progress::new(false);
    progress.start.0 -= Duration::from_secs(4320);
    progress.share = 0.5;
    assert_eq!(
        step_texts(&interval, false, progress.left())[0],
        "epoch 3/40 step 200/664 loss 2.000 ppl 7.39 lr 14.2 norm 0.213 clipped 35 % ar 0.0312 tar 0 \
         8123 tokens/s averaging eta 1 h 12 min"
    );
    let [line, _] = step_texts(&interval, true, progress.left());
    assert!(line.contains(" ppl 7.39 bpc 2.8854 lr"), "{line}");
}

#[test]
fn lines_are_seldom_unless_every_interval_is_wanted() {
    let mut progress = Progress { terminal: false, ..Progress::new(false) };
    assert!(!progress.is_due());
    progress.logged -= QUIET;
    assert!(progress.is_due());
    let progress = Progress { terminal: false, ..Progress::new(false) }.with_every_interval(true);
    assert!(progress.is_due());
    assert!(!Progress { terminal: true, ..progress }.is_due());
    assert!(!Progress { terminal: false, ..Progress::bar_only("") }.with_every_interval(true).is_due());
}

#[test]
fn the_time_left_counts_this_process_only() {
    let mut progress = Progress::bar_only("");
    assert!(progress.left().is_none());
    progress.on_start(0.5);
    progress.start.0 -= Duration::from_secs(10);
    progress.share = 0.6;
    let left = progress.left().unwrap().as_secs_f64();
    assert!((39.9..41.0).contains(&left), "{left}");
}

#[test]
fn a_bar_has_its_curves_below() {
    let mut progress = Progress::bar_only("softmax ");
    progress.on_interval(&interval());
    progress.on_interval(&StepMetrics { nll: 1.0, ppl: 1e300, ..interval() });
    let message = progress.bar.message();
    // As much more as the terminal has room for.
    assert!(message.starts_with("ppl 1.0e300"), "{message}");
    assert_eq!(progress.curves().line(80).unwrap(), "loss 2.000 █▁ 1.000");
}

#[test]
fn a_narrow_terminal_lacks_whole_items() {
    let [_, message] = step_texts(&interval(), false, Some(Duration::from_secs(4320)));
    assert_eq!(message, "ppl 7.4, 8123 tokens/s, 1 h 12 min left, lr 14.2, gradient norm 0.213");
    for columns in 0..90 {
        let text = fitting(&message, columns);
        assert!(text == "ppl 7.4" || text.len() <= columns, "{columns}: {text}");
        assert!(message == text || message[text.len()..].starts_with(", "), "{columns}: {text}");
    }
    assert_eq!(fitting(&message, 49), "ppl 7.4, 8123 tokens/s, 1 h 12 min left, lr 14.2");
    assert_eq!(fitting(&message, 80), message);
}

#[test]
fn work_is_named_if_it_takes_long() {
    let (says, said) = channel();
    let tell = |what: &'static str| {
        let says = says.clone();
        move || says.send(what).unwrap()
    };
    drop(Working::that_tells(Duration::from_secs(60), tell("short")));
    let _long = Working::that_tells(Duration::from_millis(1), tell("long"));
    assert_eq!(said.recv_timeout(Duration::from_secs(50)), Ok("long"));
}

#[test]
fn signs_of_life_come_between_reports() {
    let late = |phase| Pulse { since: Instant::now() - PATIENCE, ..Pulse::new(phase) };
    let mut first = late(Phase::First);
    assert_eq!((first.asked(), first.asked(), first.asked()), (None, Some("first step: 2 s".into()), None));
    let mut scoring = late(Phase::Scoring);
    assert_eq!((scoring.asked(), scoring.asked()), (Some("scoring held-out text".into()), None));
    for mut pulse in [late(Phase::Steps), Pulse::new(Phase::First), Pulse::new(Phase::Scoring)] {
        assert_eq!((pulse.asked(), pulse.asked()), (None, None), "{:?}", pulse.phase);
    }
}

#[test]
fn a_test_gives_a_sign_of_life() {
    let mut progress = Progress::new(false);
    progress.on_test();
    progress.pulse.since -= PATIENCE;
    assert_eq!(progress.pulse.asked(), Some("scoring held-out text".into()));
}

#[test]
fn lines_about_epochs_fit_eighty_columns() {
    let mut progress = Progress::new(false);
    let metrics = EpochMetrics {
        epoch: 40,
        seconds: 1234.4,
        tokens_per_s: 8123.4,
        train_ppl: 123.456,
        valid_ppl: 1e9,
        lr: 14.2,
        averaging: Some(true),
        train_accuracy: None,
        valid_accuracy: None,
        best: true,
    };
    // A quarter of the work took a third of 24 hours less a minute.
    progress.start.0 -= Duration::from_secs(28_780);
    progress.share = 0.25;
    let expected = "epoch 40: train 123.46, valid 1.0e9, averaged, best; 1234 s, 23 h 59 min left";
    assert_eq!(progress.epoch_line(&metrics), expected);
    assert!(expected.len() < 80);
    progress.characters = true;
    assert_eq!(progress.scores(2.0, 4.0), "train 1.0000, valid 2.0000 bits");
}
