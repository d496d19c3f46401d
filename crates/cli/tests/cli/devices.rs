//! The choice of a device.

use super::{SMALL, config, folder, objects, refused};

#[test]
fn unknown_devices_are_refused_with_the_known_ones() {
    let path = &folder();
    let known = ["unknown device `nonsense`", "auto, flex, ndarray, wgpu, cuda, cpu (the same as flex)"];
    for line in ["train --data data --out run --device nonsense", "finetune --run first --device nonsense"] {
        refused(path, line, &known);
    }
    for command in ["eval", "rank", "kl", "compare", "plif", "dynamic-eval", "generate"] {
        refused(path, &format!("{command} --run first --device nonsense"), &known);
    }
}

#[test]
fn auto_is_resolved_before_it_is_recorded() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1 --json");
    objects(path, &format!("{train} --device auto --out chosen"));
    let recorded = |run: &str| config(path, run)["device"].as_str().unwrap().to_string();
    let device = recorded("chosen");
    if cfg!(any(feature = "wgpu", feature = "cuda")) {
        assert!(["cuda", "wgpu", "flex", "ndarray"].contains(&device.as_str()), "{device}");
    } else {
        assert_eq!(device, if cfg!(feature = "flex") { "flex" } else { "ndarray" });
        // It is what a program does that is told nothing.
        objects(path, &format!("{train} --out untold"));
        assert_eq!(recorded("untold"), device);
    }
    // The run is continued on that device, whichever way it is named.
    objects(path, "train --resume chosen --json");
    objects(path, "train --resume chosen --device auto --json");
    objects(path, &format!("train --resume chosen --device {device} --json"));
    objects(path, "finetune --run chosen --epochs 1 --device auto --out tuned --json");
    assert_eq!(recorded("tuned"), device);
    objects(path, "eval --run chosen --device auto --json");
    if cfg!(feature = "flex") {
        objects(path, &format!("{train} --device cpu --out named"));
        assert_eq!(recorded("named"), "flex");
    }
    if device == "flex" && cfg!(feature = "ndarray") {
        let changed = r#"device is "ndarray" now, but "flex" in the run"#;
        refused(path, "train --resume chosen --device ndarray", &[changed]);
    }
}
