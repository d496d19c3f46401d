//! The readers of weights: safetensors, and both formats of `torch.save`.

#![no_main]

use awd_lstm::HeadKind;
use awd_lstm::weights::{Noted, StateDict};
use burn::tensor::Device;
use highrank_fuzz::{damaged, file};
use libfuzzer_sys::fuzz_target;

const FILES: [&[u8]; 4] = [
    include_bytes!("../../crates/awd-lstm/tests/models/awd_lstm_mos_one_layer.safetensors"),
    include_bytes!("../../crates/awd-lstm/tests/models/awd_lstm_mos_one_layer.pt"),
    include_bytes!("../../crates/awd-lstm/tests/models/awd_lstm_mos_one_layer.legacy.pt"),
    include_bytes!("../../crates/awd-lstm/tests/models/whole.pt"),
];

fuzz_target!(|input: &[u8]| {
    let Some((which, input)) = input.split_first() else { return };
    let path = file("weights", &damaged(FILES[usize::from(*which) % FILES.len()], input));
    let Ok(state) = StateDict::read(&path) else { return };
    for (name, tensor) in state.tensors() {
        assert_eq!(tensor.shape().num_elements(), tensor.num_elements(), "{name}");
    }
    let heads = [None, Some(HeadKind::Softmax), Some(HeadKind::MosPlif)];
    let noted = Noted { head: heads[usize::from(which >> 2) % heads.len()], ..Noted::default() };
    let Ok(config) = state.model_config(&noted) else { return };
    // A model takes a hundred times as long to make as its file to read.
    if which >> 4 == 0 && state.check_size(config.num_params()).is_ok() {
        let _ = state.model(&config, &Device::flex());
    }
});
