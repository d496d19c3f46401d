//! The script that reduces text to letters.

use super::*;

/// `scripts/letters.sh` with two arguments.
#[cfg(unix)]
fn letters(folder: &Path, from: &str, to: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/letters.sh");
    Command::new("bash").arg(script).args([from, to]).current_dir(folder).output().unwrap()
}

#[cfg(unix)]
#[test]
fn text_is_reduced_to_letters_and_read_as_characters() {
    let path = &Folder::empty();
    fs::create_dir(path.join("words")).unwrap();
    let text = " \n = A <unk> Café = \n\n In 2 @,@ 010 , it\tcost $ 1 . 5 !\n";
    for name in ["train", "valid", "test"] {
        fs::write(path.join(format!("words/{name}.txt")), text.repeat(30)).unwrap();
    }
    stderr(&letters(path, "words", "letters"), 0);
    let reduced = fs::read_to_string(path.join("letters/valid.txt")).unwrap();
    let once = "a caf in two zero one zero it cost one five ";
    assert_eq!(reduced, format!(" {}", once.repeat(30)));
    assert_eq!(fs::read_dir(path.join("letters")).unwrap().count(), 3);

    let sizes =
        "--d-embedding 4 --lstm 6,4 --batch 2 --bptt 8 --eval-batch 2 --epochs 1 --head softmax --alpha 0";
    objects(path, &format!("train --data letters --preset text8 {sizes} --out run --json"));
    let words: std::collections::BTreeSet<char> = reduced.chars().collect();
    let kept: std::collections::BTreeSet<char> = fs::read_to_string(path.join("run/vocab.txt"))
        .unwrap()
        .lines()
        .map(|line| line.chars().next().unwrap())
        .collect();
    assert_eq!(kept, words);
    // The preset reads characters in `import` as well.
    objects(path, "export run --out weights.safetensors --json");
    objects(path, "import --weights weights.safetensors --data letters --preset text8 --out again --json");
    assert_eq!(super::config(path, "again")["text"], super::config(path, "run")["text"]);

    for (from, to, expected) in [
        ("nowhere", "other", "`nowhere/train.txt` does not exist"),
        ("words", "letters", "`letters/train.txt` is already there"),
        ("words", "words/train.txt/deep", "cannot create `words/train.txt/deep`"),
    ] {
        let errors = stderr(&letters(path, from, to), 2);
        assert!(errors.lines().count() == 1 && errors.contains(expected), "{errors}");
    }
}
