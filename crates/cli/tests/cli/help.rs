//! Help texts.

use super::{Folder, run};

#[test]
fn help_names_the_program_and_its_commands() {
    let path = &Folder::empty();
    let text = |line: &str| {
        let output = run(path, line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = text("--help");
    assert!(help.contains("Usage: highrank ") && !help.contains("ptb_mos"), "{help}");
    let shown = ["train", "eval", "generate", "analyse", "sweep", "runs", "plot", "import", "export"];
    // What the others become, or were called before.
    let hidden = ["rank", "kl", "compare", "plif", "finetune", "dynamic-eval", "transformer", "dialog"];
    for command in shown.iter().chain(&hidden) {
        let listed = help.lines().any(|line| line.trim_start().starts_with(&format!("{command} ")));
        assert_eq!(listed, shown.contains(command), "{command}");
        let help = text(&format!("{command} --help"));
        let analysed = format!("analyse {command} RUN");
        // What is written today for what has another name now.
        let usage: &str = match *command {
            "finetune" => "train DATA",
            "rank" | "kl" | "compare" | "plif" => &analysed,
            "dynamic-eval" => "eval RUN --dynamic",
            "transformer" => "train [DATA] --model gpt",
            same => same,
        };
        assert!(help.contains(&format!("Usage: highrank {usage} ")), "{help}");
    }
    assert_eq!(text("--version"), format!("highrank {}\n", env!("CARGO_PKG_VERSION")));
}
