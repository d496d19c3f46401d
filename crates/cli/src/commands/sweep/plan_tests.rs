//! Plans of grids.

use super::*;
use clap::Parser;
use runs::data::Vocabulary;

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: SweepArgs,
}

/// The plan of a command line, for a text of 30 words.
fn plan(line: &str) -> Result<Plan, Failure> {
    let mut vocabulary = Vocabulary::new();
    for word in 0..30 {
        vocabulary.insert(&format!("word{word}"));
    }
    let corpus = Corpus::from_ids(vocabulary, vec![0; 9], vec![0; 9], vec![0; 9]).unwrap();
    let words = ["--data", "d"].into_iter().chain(line.split_whitespace());
    Plan::new(&Line::try_parse_from(words)?.args, &corpus)
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.runs.iter().map(|run| run.name.as_str()).collect()
}

#[test]
fn runs_are_heads_by_values_by_seeds_without_duplicates() {
    let plan = plan("--lstm 16,12 --d-embedding 8,16 --components 2,3 --knots 7 --lr 5 --seeds 1,2").unwrap();
    let of_seed = |seed| {
        ["softmax-d8", "softmax-d16", "mos-d8-k2", "mos-d8-k3", "mos-d16-k2", "mos-d16-k3"]
            .map(|name| format!("{name}-s{seed}"))
    };
    assert_eq!(names(&plan), of_seed(1).into_iter().chain(of_seed(2)).collect::<Vec<_>>());
    assert_eq!(
        plan.axes.iter().map(|axis| axis.flag.as_str()).collect::<Vec<_>>(),
        ["d-embedding", "components"]
    );
    let last = &plan.runs[11];
    assert_eq!(
        last.settings,
        [("d-embedding", "16"), ("components", "3")].map(|(a, b)| (a.into(), b.into()))
    );
    let (model, train) = (&last.config.model, &last.config.train);
    assert_eq!(
        (model.d_embedding, model.components, model.lstm_sizes.as_slice()),
        (16, 3, [16, 12].as_slice())
    );
    assert_eq!((train.seed, train.lr), (2, 5.0));
    // A head without mixture has an LSTM as wide as its embedding, and the preset's components.
    let softmax = &plan.runs[1].config.model;
    assert_eq!((softmax.lstm_sizes.as_slice(), softmax.components), ([16, 16].as_slice(), 5));
}

#[test]
fn settings_of_one_head_replace_those_of_all() {
    let plan = plan("--lr 5,6 --for mos:lr=7,lstm=9,8 --for mos:components=2 --seeds 1").unwrap();
    assert_eq!(names(&plan), ["softmax-lr5-s1", "softmax-lr6-s1", "mos-s1"]);
    let mos = &plan.runs[2].config;
    assert_eq!(
        (mos.train.lr, mos.model.lstm_sizes.as_slice(), mos.model.components),
        (7.0, [9, 8].as_slice(), 2)
    );
}

#[test]
fn parameters_are_equal_by_the_embedding_or_the_lstms() {
    let of = |plan: &Plan| plan.runs.iter().map(|run| run.config.model.clone()).collect::<Vec<_>>();
    let by_embedding = plan("--lstm 16,12 --equal parameters --components 2,20 --seeds 1").unwrap();
    assert_eq!(names(&by_embedding), ["softmax-s1", "mos-k2-s1", "mos-k20-s1"]);
    let models = of(&by_embedding);
    assert!(
        models[1].d_embedding > 2 * models[2].d_embedding && models[1].lstm_sizes == models[2].lstm_sizes
    );
    let budget = models[1].num_params() as f64;
    assert!(models.iter().all(|model| (model.num_params() as f64 / budget - 1.0).abs() < 0.02), "{models:?}");

    let by_lstm = plan("--lstm 16,12 --parameters 20000,40000 --d-embedding 8,24 --seeds 1").unwrap();
    let expected = ["d8-p20000", "d8-p40000", "d24-p20000", "d24-p40000"];
    let expected: Vec<String> =
        ["softmax", "mos"].iter().flat_map(|head| expected.map(|name| format!("{head}-{name}-s1"))).collect();
    assert_eq!(names(&by_lstm), expected);
    for (index, model) in of(&by_lstm).iter().enumerate() {
        let budget = [20000.0, 40000.0][index % 2];
        assert_eq!(model.d_embedding, [8, 24][index / 2 % 2]);
        assert!((model.num_params() as f64 / budget - 1.0).abs() < 0.02, "{model:?}");
    }
}

#[test]
fn the_mixture_that_others_are_as_large_as_has_all_that_is_given() {
    let models = |given: &str| {
        let plan =
            plan(&format!("--heads softmax,mos --lstm 16,12 --equal parameters --seeds 1 {given}")).unwrap();
        let models = plan.runs.into_iter().map(|run| run.config.model);
        models.map(|model| (model.d_embedding, model.lstm_sizes)).collect::<Vec<_>>()
    };
    let want = models("--components 15");
    assert_ne!(models(""), want);
    assert_eq!(models("--set model.components=15"), want);
    assert_eq!(models("--for mos:components=15"), want);
}

#[test]
fn width_depth_and_components_are_traded_at_equal_size() {
    let line = "--heads softmax,mos,moc --parameters 20000,40000 --layers 1,2,3 --last-lstm 12,40 --lstm 16:32 \
                --components 2,4 --seeds 1";
    let plan = plan(line).unwrap();
    let mut models: Vec<String> = vec![];
    for run in &plan.runs {
        let (model, budget) = (&run.config.model, run.settings.last().unwrap());
        assert_eq!(budget.0, "parameters");
        let (want, got) = (budget.1.parse::<f64>().unwrap(), model.num_params() as f64);
        assert!((got / want - 1.0).abs() <= 0.1, "{}: {got}", run.name);
        let setting = |flag: &str| run.settings.iter().find(|(name, _)| name == flag).map(|(_, value)| value);
        assert_eq!(setting("layers").unwrap(), &model.lstm_sizes.len().to_string(), "{}", run.name);
        let last = setting("last-lstm").unwrap().parse::<usize>().unwrap();
        match model.head.is_mixture() {
            // The width of the embedding is what is left.
            true => {
                assert_eq!(model.last_lstm(), last, "{}", run.name);
                assert_eq!(setting("components").unwrap(), &model.components.to_string());
            }
            // It is that width, and the other LSTMs are what is left.
            false => assert_eq!((model.last_lstm(), model.d_embedding), (last, last), "{}", run.name),
        }
        models.push(serde_json::to_string(&run.config.model).unwrap());
    }
    // Nothing is trained twice.
    let all = models.len();
    models.sort();
    models.dedup();
    assert_eq!(models.len(), all);
    // A single layer of a softmax is as wide as its embedding, so that nothing is left to solve for.
    let left_out = |text: &str| plan.notes.iter().filter(|note| note.contains(text)).count();
    let none_left = "left out: softmax, lstm 16, layers 1, last-lstm 12, parameters 20000: parameters is 20000, but the softmax head has no size left";
    assert_eq!(left_out(none_left), 1, "{:?}", plan.notes);
    assert!(
        plan.runs
            .iter()
            .all(|run| run.config.model.head != HeadKind::Softmax || run.config.model.lstm_sizes.len() > 1)
    );
    // A single layer has no first one: both values of --lstm are the same model.
    assert_eq!(left_out("left out: mos, 8 combinations that come to the same model"), 1, "{:?}", plan.notes);
    let single = plan.runs.iter().filter(|run| run.name.starts_with("mos-lstm16-layers1-"));
    assert_eq!(single.count(), 2 * 2 * 2);
    assert!(!plan.runs.iter().any(|run| run.name.starts_with("mos-lstm32-layers1-")));
}

#[test]
fn numbers_of_parameters_that_cannot_be_met_are_left_out() {
    let plan =
        plan("--heads softmax,mos --lstm 16,12 --parameters 3000,100,20000 --components 2,200 --seeds 1")
            .unwrap();
    let expected = [
        "softmax-p3000-s1",
        "softmax-p20000-s1",
        "mos-k2-p3000-s1",
        "mos-k2-p20000-s1",
        "mos-k200-p20000-s1",
    ];
    assert_eq!(names(&plan), expected);
    assert_eq!(plan.notes.len(), 4, "{:?}", plan.notes);
    assert!(plan.notes[0].starts_with("left out: softmax, parameters 100: parameters is 100, but"));
    assert!(
        plan.notes[2].starts_with("left out: mos, components 200, parameters 3000: "),
        "{:?}",
        plan.notes
    );
    // What is far from the number is not of that size.
    let message =
        self::plan("--heads mos --lstm 16,12 --parameters 5900 --components 100").unwrap_err().to_string();
    assert!(message.contains("parameters is 5900, but the mos head comes no nearer than 5216"), "{message}");
}

#[test]
fn a_head_has_several_values_of_its_own() {
    let plan =
        plan("--lstm 16,12 --for mos:components=2:3,lr=5:6 --for softmax:lr=7 --lr 1,2 --seeds 1").unwrap();
    assert_eq!(
        names(&plan),
        ["softmax-s1", "mos-k2-lr5-s1", "mos-k2-lr6-s1", "mos-k3-lr5-s1", "mos-k3-lr6-s1"]
    );
    assert_eq!(plan.runs[0].config.train.lr, 7.0);
}

#[test]
fn a_rate_of_the_projections_is_a_setting_of_mixtures() {
    let plan = plan("--latent-lr 0.5,2 --seeds 1").unwrap();
    assert_eq!(names(&plan), ["softmax-s1", "mos-latent-lr0.5-s1", "mos-latent-lr2-s1"]);
    let rates: Vec<f64> = plan.runs.iter().map(|run| run.config.train.latent_lr).collect();
    assert_eq!(rates, [1.0, 0.5, 2.0]);
}

#[test]
fn what_cannot_be_planned_is_one_line() {
    for (line, expected) in [
        ("--components 3,0", "mos, components 0: components is 0"),
        ("--lr-decay 0.5", "softmax: --lr-decay needs"),
        ("--lr-decay-from 3 --lr-decay-on-plateau --lr-decay 0.5", "cannot be used with"),
        ("--finetune 0", "finetune is 0, but must be at least 1"),
        ("--latent-lr 0", "mos: latent_lr is 0"),
        ("--finetune --finetune-lr 0", "softmax: lr is 0"),
        ("--lr 10,20 --set train.lr=5", "--set train.lr and --lr choose the same"),
        ("--components 3,5 --set model.components=7", "--set model.components and --components choose"),
        ("--layers 1,2 --set model.lstm_sizes=[9,9]", "--set model.lstm_sizes and --layers choose"),
        ("--dropout-latent 0,0.1 --set model.dropouts={\"latent\":0.2}", "--set model.dropouts and --drop"),
        (
            "--lr-decay-from 2:3 --lr-decay 0.5 --set train.lr_decay={\"factor\":0.7,\"when\":\"plateau\"}",
            "--set train.lr_decay and --lr-decay-from choose",
        ),
        ("--for mos:lr=3 --set train.lr=5", "--set train.lr and --for mos:lr choose the same"),
        ("--for mos:lr=3 --for mos:clip=1,lr=7:9", "--for mos has lr twice"),
        ("--seeds 1,2 --set train.seed=3", "--set train.seed and --seeds choose the same"),
        (
            "--parameters 30000 --set model.d_embedding=9",
            "--set model.d_embedding and --parameters choose the same",
        ),
        ("--equal parameters --set model.lstm_sizes=[9,9]", "--equal parameters choose the same"),
    ] {
        let message = plan(line).unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{line}: {message}");
    }
    let many: Vec<String> = (1..102).map(|value| value.to_string()).collect();
    let many = many.join(",");
    let message = plan(&format!("--lr {many} --clip {many}")).unwrap_err().to_string();
    assert!(message.contains("more than 10000 combinations"), "{message}");
}

#[test]
fn what_is_set_for_all_runs_has_the_last_word() {
    let plan = plan("--heads mos --lr 10 --clip 1,2 --set train.lr=5 --set train.seed=3").unwrap();
    let made: Vec<_> = plan.runs.iter().map(|run| (run.config.train.lr, run.config.train.seed)).collect();
    assert_eq!(made, [(5.0, 3); 2]);
}

#[test]
fn every_setting_that_may_vary_has_a_place() {
    let line =
        "--layers 1 --last-lstm 9 --lr-decay 0.5 --lr-decay-from 3 --d-embedding 8 --lstm 9 --epochs 1";
    let axes = Line::parse_from(line.split(' ').chain(["--data", "d"])).args.grid.axes;
    let places: Vec<&str> = axes.iter().map(|axis| place(&axis.flag)).collect();
    assert!(places.len() == 7 && places.contains(&"train.epochs"), "{places:?}");
}

#[test]
fn names_of_folders_are_plain() {
    let plan = plan("--heads mos --lstm 16,12:9 --dropout-latent 0.1,0.2 --seeds 1").unwrap();
    assert_eq!(names(&plan)[0], "mos-lstm16_12-dropout-latent0.1-s1");
    assert_eq!(plan.runs.len(), 4);
}

#[test]
fn what_is_not_said_is_the_preset() {
    let parse = |line: &str| Line::parse_from(line.split(' ')).args;
    let sweep = parse("--data d");
    assert_eq!((sweep.heads().len(), sweep.seeds().unwrap()), (2, vec![28]));
    assert_eq!((sweep.out(), parse("--from a/b.jsonl c.jsonl").out()), ("runs/sweep".into(), "a/b".into()));
    assert_eq!(parse("--data d --heads all").heads(), HeadKind::ALL);
    assert_eq!(parse("--data d --finetune --rank 5").finetune, Some(None));
    assert_eq!(parse("--data d --finetune 3").finetune, Some(Some(3)));
    let error = Line::try_parse_from(["--from", "f", "--dry-run"]).unwrap_err().to_string();
    assert!(error.contains("cannot be used with"), "{error}");
}
