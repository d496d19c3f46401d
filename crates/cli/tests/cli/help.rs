//! Help texts.

use super::run;

#[test]
fn help_names_the_program_and_its_commands() {
    let folder = tempfile::tempdir().unwrap();
    let text = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = text("--help");
    assert!(help.contains("Usage: highrank ") && !help.contains("ptb_mos"), "{help}");
    for command in [
        "train",
        "eval",
        "rank",
        "kl",
        "compare",
        "plif",
        "finetune",
        "dynamic-eval",
        "sweep",
        "ablation",
        "runs",
        "generate",
        "import",
        "export",
        "transformer",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}");
        let help = text(&format!("{command} --help"));
        assert!(help.contains(&format!("Usage: highrank {command} ")), "{help}");
    }
    assert_eq!(text("--version"), format!("highrank {}\n", env!("CARGO_PKG_VERSION")));
}
