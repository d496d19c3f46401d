//! Standard output that takes no more: a full disk, and a reader that has seen enough.
#![cfg(target_os = "linux")]

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use super::{SMALL, folder, objects, program};

/// Commands that only read the runs `first` and `second`, with a file or two that some of them write.
const READING: [(&str, &[&str]); 11] = [
    ("--help", &[]),
    ("train --help", &[]),
    ("runs .", &[]),
    ("runs . --json", &[]),
    ("eval --run first", &[]),
    ("generate --run first --tokens 40 --prompt topic1", &[]),
    ("rank --run first second --tokens 40 --out drawn", &["drawn/spectrum.svg"]),
    ("kl --run first second --tokens 40 --json", &[]),
    ("compare --run first second", &[]),
    ("curves --run first second --out drawn", &["drawn/curves.svg"]),
    ("export --run first --out drawn/first.safetensors", &["drawn/first.safetensors"]),
];

#[test]
fn a_full_disk_is_told_and_a_closed_pipe_is_not() {
    let path = &folder();
    for run in ["first", "second"] {
        objects(path, &format!("train {SMALL} --epochs 1 --out {run} --json"));
    }
    let training = format!("train {SMALL} --epochs 2 --out drawn/run --json");
    let written = ["drawn/run/best/model.safetensors", "drawn/run/curves.svg"];
    let all = READING.into_iter().chain([(training.as_str(), written.as_slice())]);
    for (line, files) in all {
        for full in [true, false] {
            let _ = fs::remove_dir_all(path.join("drawn"));
            fs::create_dir(path.join("drawn")).unwrap();
            let out = match full {
                true => Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap()),
                // The reading end is dropped before anything is written.
                false => Stdio::from(std::io::pipe().unwrap().1),
            };
            let output = program(path, line).stdout(out).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            let told: Vec<&str> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
            assert_eq!(output.status.code(), Some(if full { 2 } else { 0 }), "{line}: {errors}");
            match full {
                true => {
                    assert_eq!(told.len(), 1, "{line}: {errors}");
                    let expected = "error: cannot write to standard output: No space left on device";
                    assert!(told[0].starts_with(expected), "{line}: {errors}");
                }
                false => assert!(told.is_empty(), "{line}: {errors}"),
            }
            assert!(!errors.contains("panicked"), "{line}: {errors}");
            for file in files {
                assert!(path.join(file).is_file(), "{line}: {file}");
            }
        }
    }
}
