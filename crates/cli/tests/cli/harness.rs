//! Starts a program and reads what it prints and writes; the tests of benches and studies share it.
// Each of them uses a part.
#![allow(dead_code)]

use std::fs;
use std::ops::Deref;
use std::path::Path;
#[cfg(unix)]
use std::process::Child;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A folder of a test's own, which is gone when this is dropped.
pub struct Folder(TempDir);

impl Folder {
    /// One without files.
    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self
    }
}

/// The path of a built program.
#[derive(Clone, Copy)]
pub struct Program(pub &'static str);

impl Program {
    /// The program, to be started in `folder` with the words of `line` as arguments.
    pub fn command(self, folder: &Path, line: &str) -> Command {
        let mut command = Command::new(self.0);
        command.current_dir(folder).args(line.split_whitespace());
        command
    }

    /// Runs the program in `folder` with the words of `line` as arguments.
    pub fn run(self, folder: &Path, line: &str) -> Output {
        self.command(folder, line).output().unwrap()
    }

    /// Runs the program and checks that it refuses its input with one line that holds each of `expected`.
    #[track_caller]
    pub fn refused(self, folder: &Path, line: &str, expected: &[&str]) {
        let output = self.run(folder, line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{line}: {errors}");
        assert!(errors.starts_with("error: ") && !errors.contains("panicked"), "{line}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "{line}: `{part}` is not in {errors}");
        }
        assert!(output.stdout.is_empty(), "{line}");
    }

    /// Runs the program, which must succeed, and returns its standard output.
    #[track_caller]
    pub fn text(self, folder: &Path, line: &str) -> String {
        let output = self.run(folder, line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects, one a line, that the program prints, which must succeed.
    #[track_caller]
    pub fn objects(self, folder: &Path, line: &str) -> Vec<Value> {
        parsed(&self.text(folder, line))
    }
}

/// What a program says on standard error, which must have ended with this status.
#[track_caller]
pub fn stderr(output: &Output, status: i32) -> String {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{errors}");
    errors
}

/// The objects of a text, one a line.
pub fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A number of an object.
pub fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} in {object}"))
}

/// A picture that has these words.
pub fn assert_pictures(folder: &Path, stem: &str, words: &[&str]) {
    let svg = fs::read_to_string(folder.join(format!("{stem}.svg"))).unwrap();
    for word in words {
        assert!(svg.contains(word), "{stem}.svg lacks {word}");
    }
}

/// Waits until a file is there.
pub fn wait_for(file: &Path) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < patience, "no {}", file.display());
        sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process.
#[cfg(unix)]
pub fn child_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
