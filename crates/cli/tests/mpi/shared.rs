//! Processes that share a vocabulary.

use super::*;

/// A command line that trains, and how many of its processes share a vocabulary.
fn train(head: &str, out: &str, width: usize) -> String {
    format!("train {} --head {head} --epochs 2 --json --vocab-parallel {width} --out {out}", small(head))
}

#[test]
fn they_train_the_model_of_one_process() {
    let path = &folder();
    for head in ["softmax", "moc", "mos --untied", "sigsoftmax", "gss", "plif --untied", "mos-plif", "doc"] {
        let name = |of: &str| format!("{}-{of}", head.split(' ').next().unwrap());
        let one = good(alone(path, &train(head, &name("one"), 1)));
        for (count, width) in [(2, 2), (4, 4), (4, 2)] {
            let out = name(&format!("{count}-{width}"));
            let shared = good(ranks(path, count, &train(head, &out, width)));
            // The same masks of dropout, so that they differ by rounding alone.
            let far = distance(&path.join(&out), &path.join(name("one")));
            assert!(far < 1e-4, "{out}: {far}");
            near(&shared, &one, &PPLS, 1e-4, &out);
            // Whoever reads the run sees a whole model.
            let eval = good(alone(path, &format!("eval --run {out} --device flex --json")));
            near(&shared, &eval, &["test_ppl"], 1e-5, &out);
        }
    }
    good(alone(path, "generate --run mos-4-2 --tokens 9 --device flex"));
}

#[test]
fn a_run_goes_on_with_another_number_of_them() {
    let path = &folder();
    // With averages, and a checkpoint within an epoch.
    let train = format!("train {SMALL} --validate-every 5 --average-from-start --json");
    good(ranks(path, 2, &format!("{train} --epochs 3 --vocab-parallel 2 --out whole")));
    for (count, width) in [(2, 2), (1, 1), (2, 1), (4, 4), (4, 2)] {
        let out = format!("part-{count}-{width}");
        good(ranks(path, 2, &format!("{train} --epochs 1 --vocab-parallel 2 --out {out}")));
        let resume = format!("train --resume {out} --epochs 3 --vocab-parallel {width} --json");
        good(ranks(path, count, &resume));
        let far = distance(&path.join("whole"), &path.join(&out));
        assert!(if (count, width) == (2, 2) { far == 0.0 } else { far < 1e-4 }, "{out}: {far}");
    }
    good(alone(path, &format!("{train} --epochs 1 --out one")));
    good(ranks(path, 2, "train --resume one --epochs 3 --vocab-parallel 2"));
    let far = distance(&path.join("whole"), &path.join("one"));
    assert!(far < 1e-4, "{far}");
    // From the best model of another run.
    good(ranks(path, 2, "train --from whole --epochs 1 --lr 2 --vocab-parallel 2 --out tuned"));
    good(alone(path, "train --from whole --epochs 1 --lr 2 --out alone"));
    let far = distance(&path.join("tuned"), &path.join("alone"));
    assert!(far < 1e-4, "{far}");
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_written() {
    let path = &folder();
    let of = |width: usize| format!("train {SMALL} --vocab-parallel {width} --out run");
    let line = "error: --vocab-parallel is 2, but must divide the number of ranks, which is ";
    bad(ranks(path, 3, &of(2)), &[&format!("{line}3")]);
    bad(alone(path, &of(2)), &[&format!("{line}1")]);
    bad(ranks(path, 2, &of(0)), &["error: --vocab-parallel is 0, but must divide"]);
    bad(
        ranks_of(path, &[(1, &of(1)), (1, &of(2))]),
        &["rank 1 differs from rank 0: vocab_parallel is 2 there, but 1 at rank 0"],
    );
    bad(
        ranks(path, 2, &of(2).replace("--components 2", "--head mixtape")),
        &["error: a Mixtape is not made by a head whose vocabulary"],
    );
    bad(
        ranks(path, 2, &(of(2) + " --cutoffs 6")),
        &["error: a softmax with clusters is not made by a head", "leave --cutoffs out"],
    );
    // Seven groups, and six columns.
    bad(ranks(path, 14, &of(2)), &["error: 14 ranks in groups of 2 cannot share a batch of 6: every group"]);
    assert!(!path.join("run").exists());
}
