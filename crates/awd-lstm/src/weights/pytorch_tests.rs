use super::*;
use std::fs;
use std::path::Path;

/// A file that a PyTorch program wrote (`scripts/torch_model.py`).
fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    fs::read(folder.join(name)).unwrap()
}

#[test]
fn both_formats_hold_the_same_tensors() {
    let (zip, legacy) = (file("awd_lstm_mos_one_layer.pt"), file("awd_lstm_mos_one_layer.legacy.pt"));
    assert!(is_pytorch(&zip) && is_pytorch(&legacy));
    // Safetensors with headers of any length.
    assert!((0..1 << 20).step_by(8).all(|length: u64| !is_pytorch(&length.to_le_bytes())));
    let (zip, legacy) = (read(&zip).unwrap(), read(&legacy).unwrap());
    assert_eq!(zip, legacy);
    assert_eq!(zip.len(), 10);
    assert_eq!(zip["rnns.0.module.weight_hh_l0_raw"].shape().as_slice(), [28, 7]);
    // The two names of a tied matrix share one storage in these files.
    assert_eq!(zip["encoder.weight"], zip["decoder.weight"]);
}

#[test]
fn cut_off_files_are_damaged_wherever_they_end() {
    for name in ["awd_lstm_mos_one_layer.pt", "awd_lstm_mos_one_layer.legacy.pt"] {
        let bytes = file(name);
        for length in (2..bytes.len()).step_by(37).chain([bytes.len() - 1]) {
            assert!(matches!(read(&bytes[..length]), Err(Fault::Damaged(_))), "{name} cut at {length}");
        }
    }
}

#[test]
fn a_flipped_byte_never_panics() {
    for name in ["awd_lstm_mos_one_layer.pt", "awd_lstm_mos_one_layer.legacy.pt"] {
        let good = file(name);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            // Weights may change; what must not happen is a crash.
            let _ = read(&bytes);
        }
    }
}

#[test]
fn a_whole_model_is_named_by_its_class() {
    let Err(Fault::Object(found)) = read(&file("whole.pt")) else { panic!("an object") };
    assert_eq!(found, "a whole pickled object (torch.nn.modules.container.Sequential)");
}

/// A file of the old format around one pickle and one storage `0` of floats.
fn legacy_file(pickle: &[u8], keys: &[u8], floats: &[f32]) -> Vec<u8> {
    let mut bytes = LEGACY_MAGIC.to_vec();
    bytes.extend(b"\x80\x02M\xe9\x03.");
    bytes.extend(b"\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.");
    bytes.extend(pickle);
    bytes.extend(keys);
    bytes.extend((floats.len() as u64).to_le_bytes());
    bytes.extend(floats.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

/// The pickle of `{"w": tensor}` with a view of storage `0`: offset, two sizes, two strides.
fn view(offset: u8, sizes: [u8; 2], strides: [u8; 2]) -> Vec<u8> {
    let mut pickle = b"}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n(".to_vec();
    pickle.extend(
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06NtQ",
    );
    pickle.extend([
        b'K', offset, b'K', sizes[0], b'K', sizes[1], 0x86, b'K', strides[0], b'K', strides[1], 0x86,
    ]);
    pickle.extend(b"\x89NtRs.");
    pickle
}

const KEYS: &[u8] = b"]X\x01\x00\x00\x000a.";

#[test]
fn views_are_gathered_by_their_strides() {
    let floats = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let tensor = |pickle: Vec<u8>| -> Result<TensorData, Fault> {
        Ok(read(&legacy_file(&pickle, KEYS, &floats))?.remove("w").unwrap())
    };
    // A transposed matrix, and a block inside a larger one.
    let transposed = tensor(view(0, [3, 2], [1, 3])).unwrap();
    assert_eq!(transposed, TensorData::from([[0.0f32, 3.0], [1.0, 4.0], [2.0, 5.0]]));
    assert_eq!(tensor(view(1, [2, 2], [3, 1])).unwrap(), TensorData::from([[1.0f32, 2.0], [4.0, 5.0]]));
    // Past the end of the storage, and a repeated element.
    for pickle in [view(1, [2, 3], [3, 1]), view(6, [1, 1], [1, 1]), view(0, [200, 200], [0, 0])] {
        let Err(Fault::Damaged(reason)) = tensor(pickle) else { panic!("it does not fit") };
        assert!(reason.starts_with("tensor w: its shape"), "{reason}");
    }
}

#[test]
fn what_is_beside_a_state_dict_is_passed_over_and_other_things_are_refused() {
    let inner = view(0, [2, 3], [3, 1]);
    // {"epoch": 3, "state_dict": {"w": …}}
    let mut nested = b"}(X\x05\x00\x00\x00epochK\x03X\x0a\x00\x00\x00state_dict".to_vec();
    nested.extend(&inner[..inner.len() - 1]);
    nested.extend(b"u.");
    assert_eq!(
        read(&legacy_file(&nested, KEYS, &[0.5; 6])).unwrap()["w"],
        TensorData::from([[0.5f32; 3]; 2])
    );

    // {"w": 3}, and a module with its source text, as PyTorch before 1.6 saved it.
    for (pickle, expected) in [
        (b"}X\x01\x00\x00\x00wK\x03s.".as_slice(), "a dictionary with `w`, which is no tensor"),
        (
            b"(X\x06\x00\x00\x00modulecmodel\nRNNModel\nX\x01\x00\x00\x00pX\x01\x00\x00\x00stQ)\x81}b.",
            "model.RNNModel",
        ),
        (b"K\x03.", "something without tensors"),
    ] {
        let file = legacy_file(pickle, b"].", &[]);
        let Err(Fault::Object(found)) = read(&file) else { panic!("{expected}") };
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn a_storage_under_many_names_is_not_read_again_without_end() {
    // {"w000000": tensor, "w000001": the same, …} over a storage of 4 kB.
    let floats = vec![0.25; 1000];
    let named = |count: usize| {
        let tensor = view(0, [10, 100], [100, 1]);
        // Between the dictionary with its first name and the end: the tensor itself.
        let tensor = &tensor[b"}X\x01\x00\x00\x00w".len()..tensor.len() - b"s.".len()];
        let mut pickle = b"}(".to_vec();
        for number in 0..count {
            pickle.extend(b"X\x07\x00\x00\x00");
            pickle.extend(format!("w{number:06}").into_bytes());
            match number {
                0 => pickle.extend([tensor, b"q\x00"].concat()),
                _ => pickle.extend(b"h\x00"),
            }
        }
        pickle.extend(b"u.");
        legacy_file(&pickle, KEYS, &floats)
    };
    // A tied matrix has two names.
    assert_eq!(read(&named(2)).unwrap().len(), 2);
    let Err(Fault::Damaged(reason)) = read(&named(1000)) else { panic!("it is 4 MB from 18 kB") };
    assert!(reason.contains("with it the tensors are more than 8 times the file"), "{reason}");
}

#[test]
fn a_shape_of_many_dimensions_is_refused() {
    let mut pickle = view(0, [1, 1], [1, 1]);
    let sizes = pickle.windows(5).position(|five| five == [b'K', 1, b'K', 1, 0x86]).unwrap();
    let many = [b"(".as_slice(), &b"K\x01".repeat(1000), b"t"].concat();
    pickle.splice(sizes..sizes + 5, many);
    let Err(Fault::Damaged(reason)) = read(&legacy_file(&pickle, KEYS, &[0.0])) else { panic!("a shape") };
    assert_eq!(reason, "tensor w: a shape of 1000 dimensions");
}
