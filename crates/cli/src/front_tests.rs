use super::*;

fn line(commands: &Command, text: &str) -> Result<String, String> {
    let words = super::words(commands, text.split(' ').map(OsString::from).collect());
    let words = words.map_err(|error| error.to_string())?;
    Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
}

/// Folders `lstm`, `dialogues` and `transformer` that look like runs.
fn runs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, model) in
        [("lstm", Model::AwdLstm), ("dialogues", Model::Seq2seq), ("transformer", Model::Gpt)]
    {
        let run = folder.path().join(name);
        fs::create_dir(&run).unwrap();
        let versions = serde_json::json!({"versions": {"kind": model.name(), "format": runs::FORMAT}});
        fs::write(run.join("config.json"), versions.to_string()).unwrap();
        runs::note_hashes(&run).unwrap();
    }
    folder
}

#[test]
fn a_line_becomes_that_of_its_model() {
    let (folder, commands) = (runs(), crate::programs::commands());
    let path = folder.path().display();
    for (text, expected) in [
        ("train DATA --head mos", "train --data DATA --head mos"),
        ("train --head mos DATA --json", "train --head mos --data DATA --json"),
        ("train --data DATA", "train --data DATA"),
        ("train DATA --model awd-lstm", "train --data DATA"),
        ("train DATA --model=seq2seq --head moc", "dialog train --data DATA --head moc"),
        ("train --model gpt DATA --steps 5", "transformer --data DATA --steps 5"),
        ("train --resume PATH/transformer", "transformer --resume PATH/transformer"),
        ("train --resume PATH/dialogues --epochs 3", "dialog train --resume PATH/dialogues --epochs 3"),
        ("train --from PATH/lstm --epochs 3", "train --from PATH/lstm --epochs 3"),
        (
            "train --epochs 3 --from=PATH/transformer D",
            "transformer --from PATH/transformer --epochs 3 --data D",
        ),
        ("finetune --epochs 3 --run=PATH/lstm", "train --from PATH/lstm --epochs 3"),
        ("transformer --run PATH/transformer --json", "eval --run PATH/transformer --json"),
        ("transformer --eval-tokens 9 --run=A --data D", "eval --run=A --data D --max-tokens 9"),
        (
            "transformer --data D --head mos --steps 9 --json",
            "transformer --data D --head mos --steps 9 --json",
        ),
        ("finetune --help", "train --help"),
        ("help finetune", "help train"),
        ("help rank", "help analyse rank"),
        ("help eval", "help eval"),
        ("help", "help"),
        ("eval PATH/lstm --split valid", "eval --run PATH/lstm --split valid"),
        ("eval --split valid PATH/lstm", "eval --split valid --run PATH/lstm"),
        ("eval --limit 5 PATH/lstm", "eval --limit 5 --run PATH/lstm"),
        ("eval PATH/lstm --dynamic", "dynamic-eval --run PATH/lstm"),
        ("eval PATH/dialogues --json", "dialog eval PATH/dialogues --json"),
        ("eval --run PATH/dialogues", "dialog eval PATH/dialogues"),
        ("eval PATH/transformer --split valid", "eval --run PATH/transformer --split valid"),
        ("generate PATH/lstm", "generate --run PATH/lstm"),
        ("generate PATH/transformer --tokens 5", "generate --run PATH/transformer --tokens 5"),
        ("generate PATH/dialogues", "dialog respond PATH/dialogues"),
        ("generate --go-on --run PATH/dialogues", "dialog respond PATH/dialogues --go-on"),
        ("generate --go-on PATH/dialogues", "dialog respond --go-on PATH/dialogues"),
        ("generate --help PATH/dialogues", "dialog respond --help PATH/dialogues"),
        // The value of an option may have the name of a run.
        ("generate --prompt PATH/dialogues PATH/lstm", "generate --prompt PATH/dialogues --run PATH/lstm"),
        ("export --out w --run=PATH/dialogues", "export --out w --run=PATH/dialogues"),
        ("dialog export PATH/dialogues --out w", "export --run PATH/dialogues --out w"),
        ("export PATH/lstm --out w.pt", "export --run PATH/lstm --out w.pt"),
        ("analyse rank PATH/lstm B --tokens 5", "analyse rank --run PATH/lstm --run B --tokens 5"),
        ("plot PATH/lstm PATH/transformer --out d", "curves --run PATH/lstm --run PATH/transformer --out d"),
        ("runs runs --json", "runs runs --json"),
        ("sweep --data DATA --finetune 3", "sweep --data DATA --finetune 3"),
        ("eval -h", "eval -h"),
        ("train --no-test DATA", "train --no-test --data DATA"),
        ("sweep --data DATA --sede 1", "sweep --data DATA --sede 1"),
        ("rank --run A", "analyse rank --run A"),
        ("gradient-loss --run A B", "analyse gradient --run A B"),
    ] {
        let fill = |text: &str| text.replace("PATH", &path.to_string());
        assert_eq!(line(&commands, &fill(text)).unwrap(), fill(expected), "{text}");
    }
    for (text, expected) in [
        ("train D --model lstm", "unknown model `lstm`"),
        ("finetune --epochs 3", "finetune needs --run <RUN>"),
        ("train --model gpt --resume PATH/lstm", "is a run of awd-lstm"),
        ("train --from PATH/dialogues", "seq2seq has no such training"),
        ("train --from PATH/none --head mos", "is not a run folder"),
        ("train D --model", "--model needs a value"),
        ("train --from PATH/lstm --resume PATH/lstm", "--from starts a new run and --resume continues one"),
        ("train a --lr 3 b", "one DATA is given already: leave `b` out"),
        ("train --data a b", "one DATA is given already: leave `b` out"),
        ("eval PATH/lstm b", "one RUN is given already: leave `b` out"),
        ("eval PATH/dialogues --run PATH/dialogues", "one RUN is given already: leave `PATH/dialogues` out"),
        ("generate PATH/lstm b", "one RUN is given already: leave `b` out"),
        ("eval PATH/lstm --dynamic --split test", "with the best weights: leave --split out"),
        ("eval PATH/lstm --dynamic --limit=9", "leave --limit out"),
        ("eval PATH/lstm --dynamic --weights last", "leave --weights out"),
        ("eval PATH/transformer --dynamic", "this is a run of gpt"),
        ("sweep PATH", "is a folder, but sweep reads a file of options: a text is `--data "),
        ("plot nowhere.jsonl", "cannot read `nowhere.jsonl`"),
        ("plot PATH/lstm PATH/lstm/config.json", "plot draws runs or files of lines, not both"),
        ("plot PATH/lstm/config.json PATH/lstm", "plot draws runs or files of lines, not both"),
        ("export PATH/transformer --out w.safetensors", "a transformer needs no export"),
    ] {
        let message = line(&commands, &text.replace("PATH", &path.to_string())).unwrap_err();
        let expected = expected.replace("PATH", &path.to_string());
        assert!(message.contains(&expected), "{text}: {message}");
    }
}

#[test]
fn a_sweep_is_read_from_a_file() {
    let (folder, commands) = (tempfile::tempdir().unwrap(), crate::programs::commands());
    let path = folder.path().join("sweep.toml");
    fs::write(&path, "data = \"ptb\"\nheads = [\"softmax\", \"mos\"]\nlr = [10, 2.5]\nequal = \"parameters\"\nno_test = true\nfor = [\"mos:lr=3\", \"softmax:lr=4\"]\n")
        .unwrap();
    let file = path.display();
    assert_eq!(
        line(&commands, &format!("sweep {file} --lr 7")).unwrap(),
        "sweep --lr 7 --data=ptb --equal=parameters --for=mos:lr=3 --for=softmax:lr=4 --heads=softmax,mos --no-test"
    );
    for (text, expected) in [
        ("lstm = [[24, 16], [32, 16]]", "--lstm=24,16:32,16"),
        ("lstm = [\"24,16\", [32, 16], \"7\"]", "--lstm=24,16:32,16:7"),
        ("lstm = [24, 16]", "--lstm=24,16"),
        ("lstm = [[24, 16]]", "--lstm=24,16"),
        ("untied = [true, false]", "--untied=true,false"),
        // A flag has no value; `lower-case` has one, and a preset may have another.
        ("dry_run = false", ""),
        ("lower_case = false", "--lower-case=false"),
        ("no_tset = false", "--no-tset=false"),
    ] {
        fs::write(&path, text).unwrap();
        let expected = format!("sweep {expected}");
        assert_eq!(line(&commands, &format!("sweep {file}")).unwrap(), expected.trim_end());
    }
    for (text, expected) in [
        ("lstm = [[24, 16], 32]", "lstm must be a value, a list of values, or a list of lists"),
        ("lstm = [[[24], 16]]", "lstm must be a value, a list of values, or a list of lists"),
        ("set = [[\"train.lr=3\"]]", "set must be a list of values without lists in it"),
        ("lr = 3\n\nlr = 4\n", "is damaged: line 3: "),
        ("d-embedding = 8\nd_embedding = 9\n", "d-embedding and d_embedding are one setting"),
        ("lr = {a = 1}\n", "lr must be a value"),
        ("lr = \n", "is damaged"),
    ] {
        fs::write(&path, text).unwrap();
        let message = line(&commands, &format!("sweep {file}")).unwrap_err();
        assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
    }
}

#[test]
fn a_file_is_drawn_as_its_lines_say() {
    let (folder, commands) = (tempfile::tempdir().unwrap(), crate::programs::commands());
    let path = folder.path().join("found.jsonl");
    let file = path.display();
    for (text, command) in [("{\"singular_values\":[1]}", "analyse rank"), ("{\"best_epoch\":1}", "sweep")] {
        fs::write(&path, text).unwrap();
        let expected = format!("{command} --from {file} --out d");
        assert_eq!(line(&commands, &format!("plot {file} --out d")).unwrap(), expected);
    }
    fs::write(&path, "{\"slope_mean\":1}").unwrap();
    let expected = format!("analyse plif --from {file} --out=.");
    assert_eq!(line(&commands, &format!("plot {file}")).unwrap(), expected);
    fs::write(&path, "\nno object\n").unwrap();
    assert!(line(&commands, &format!("plot {file}")).unwrap_err().contains("line 2 is not JSON"));
    fs::write(&path, "{\"x\":1}").unwrap();
    assert!(line(&commands, &format!("plot {file}")).unwrap_err().contains("holds nothing to draw"));
}
