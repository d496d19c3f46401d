//! A run's folder while it is saved again and again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use runs::EPOCH;
use runs::STATE;

/// The files below `folder`, as paths in it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    fn add(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => add(root, &path, files),
                false => drop(files.insert(path.strip_prefix(root).unwrap().to_path_buf())),
            }
        }
    }
    let mut found = BTreeSet::new();
    add(folder, folder, &mut found);
    found
}

/// Looks at the folder before every step.
struct Watch {
    folder: PathBuf,
    /// The checkpoint's state that was seen last, and how many there were.
    state: Vec<u8>,
    saves: usize,
    /// All files that were ever there.
    files: BTreeSet<PathBuf>,
}

impl TrainObserver for Watch {
    fn stop(&mut self) -> bool {
        if let Ok(state) = fs::read(self.folder.join("checkpoint").join(STATE))
            && state != self.state
        {
            (self.state, self.saves) = (state, self.saves + 1);
        }
        self.files.append(&mut files(&self.folder));
        false
    }
}

#[test]
fn hundreds_of_saves_leave_nothing_behind() {
    let config = config(5);
    let (root, run) = run_of(&config);
    let mut trainer = trainer(&config).with_checkpoint_every(std::time::Duration::ZERO);
    let mut watch =
        Watch { folder: root.path().to_path_buf(), state: vec![], saves: 0, files: BTreeSet::new() };
    finished(trainer.fit(Some(&run), &mut watch).unwrap());
    assert!(watch.saves > 180, "{} saves", watch.saves);
    // At any time there was but what is there in the end, and the states that are carried within an epoch.
    let left = files(root.path());
    let gone: Vec<_> = watch.files.difference(&left).collect();
    assert_eq!(gone, [&Path::new("checkpoint").join(EPOCH)]);
    assert!(left.len() < 12, "{left:?}");
    let bytes: u64 = left.iter().map(|file| fs::metadata(root.path().join(file)).unwrap().len()).sum();
    assert!(bytes < 500_000, "{bytes} bytes in {left:?}");
}
