//! The names of tensors: paths in [`LanguageModel`](crate::LanguageModel) and names in a state dict. Only here are both known.

/// A tensor of a state dict that a parameter of the model stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorName {
    /// Its name without the levels that weight dropout adds.
    pub name: String,
    /// Whether the model keeps it transposed: Burn's linear layers are `[in, out]`, PyTorch's `[out, in]`.
    pub transposed: bool,
}

/// The tensor for the parameter at `path` in a model whose head reads the outputs of the `connected` layers; none if the path is
/// unknown.
pub(super) fn of_parameter(path: &str, connected: &[usize]) -> Option<TensorName> {
    let parts: Vec<&str> = path.split('.').collect();
    let (name, transposed) = match parts.as_slice() {
        ["embedding"] => ("encoder.weight".into(), false),
        ["decoder"] => ("decoder.weight".into(), false),
        ["head", "decoder", "bias"] => ("decoder.bias".into(), false),
        ["lstms", layer, parameter @ ("w_ih" | "w_hh" | "b_ih" | "b_hh")] => {
            let parameter = parameter.replace("w_", "weight_").replace("b_", "bias_");
            (lstm(layer, &format!("{parameter}_l0")), false)
        }
        ["head", "context", _, "prior", "weight"] => ("prior.weight".into(), true),
        ["head", "context", _, "latent", "weight"] => ("latent.0.weight".into(), true),
        ["head", "context", _, "latent", "bias"] => ("latent.0.bias".into(), false),
        ["head", "context", _, "latents", index, parameter] => {
            let index: usize = index.parse().ok()?;
            let layer = (index + 1 < connected.len()).then(|| connected[index]);
            (format!("{}.{parameter}", connection(layer)), *parameter == "weight")
        }
        ["head", "context", _, gates @ ("features" | "base"), "weight"] => {
            (format!("gates.{gates}.weight"), true)
        }
        ["head", "context", _, gates @ ("vectors" | "bias")] => (format!("gates.{gates}"), false),
        ["head", "clusters", "tails", cluster, "projection"] => (format!("tail.{cluster}.0.weight"), true),
        ["head", "clusters", "tails", cluster, "decoder", "weight"] => {
            (format!("tail.{cluster}.1.weight"), false)
        }
        ["head", "logit_map", map, parameter] => (format!("{}.{parameter}", map.to_lowercase()), false),
        _ => return None,
    };
    Some(TensorName { name, transposed })
}

/// The linear layer of the contexts that a direct output connection has from a layer below the last LSTM, 0 the embedding; or from
/// the last LSTM itself. The authors' program has three LSTMs and names no more.
pub(super) fn connection(lower: Option<usize>) -> String {
    match lower {
        None => "latent".into(),
        Some(0) => "weight4embed".into(),
        Some(1) => "weight4first".into(),
        Some(2) => "weight4second".into(),
        Some(layer) => format!("weight4layer{layer}"),
    }
}

/// The name of an LSTM's tensor.
pub(super) fn lstm(layer: impl std::fmt::Display, parameter: &str) -> String {
    format!("rnns.{layer}.{parameter}")
}

/// A tensor's name in a model with weight dropout, which wraps every LSTM and keeps its raw recurrent matrix.
pub(super) fn under_weight_dropout(name: &str) -> String {
    match split_lstm(name) {
        Some((layer, "weight_hh_l0")) => lstm(layer, "module.weight_hh_l0_raw"),
        Some((layer, parameter)) => lstm(layer, &format!("module.{parameter}")),
        None => name.to_string(),
    }
}

/// A tensor's name without the levels of weight dropout, and whether it is the raw matrix under it.
pub(super) fn plain(name: &str) -> (String, bool) {
    let Some((layer, parameter)) = split_lstm(name) else { return (of_clusters(name), false) };
    let parameter = parameter.strip_prefix("module.").unwrap_or(parameter);
    match parameter.strip_suffix("_raw") {
        Some(parameter) => (lstm(layer, parameter), true),
        None => (lstm(layer, parameter), false),
    }
}

/// The name of a tensor that may be one of PyTorch's `AdaptiveLogSoftmaxWithLoss`, by itself or as the program's `decoder`.
fn of_clusters(name: &str) -> String {
    let own = name.strip_prefix("decoder.").unwrap_or(name);
    match own {
        "head.weight" => "decoder.weight".into(),
        "head.bias" => "decoder.bias".into(),
        _ if own.starts_with("tail.") => own.into(),
        _ => name.into(),
    }
}

/// The layer's number and the rest of an LSTM tensor's name.
pub(super) fn split_lstm(name: &str) -> Option<(usize, &str)> {
    let (layer, parameter) = name.strip_prefix("rnns.")?.split_once('.')?;
    Some((layer.parse().ok()?, parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lstm_names_lose_and_gain_the_levels_of_weight_dropout() {
        let cases = [
            ("rnns.2.module.weight_hh_l0_raw", "rnns.2.weight_hh_l0", true),
            ("rnns.2.weight_hh_l0_raw", "rnns.2.weight_hh_l0", true),
            ("rnns.2.weight_hh_l0", "rnns.2.weight_hh_l0", false),
            ("rnns.10.module.bias_ih_l0", "rnns.10.bias_ih_l0", false),
            ("encoder.weight", "encoder.weight", false),
            ("decoder.weight", "decoder.weight", false),
            ("head.weight", "decoder.weight", false),
            ("decoder.head.bias", "decoder.bias", false),
            ("decoder.tail.1.0.weight", "tail.1.0.weight", false),
            ("tail.0.1.weight", "tail.0.1.weight", false),
            ("head.prior.weight", "head.prior.weight", false),
            ("decoder.weight_ih_l0", "decoder.weight_ih_l0", false),
        ];
        for (name, expected, raw) in cases {
            assert_eq!(plain(name), (expected.to_string(), raw));
        }
        for name in ["rnns.0.weight_hh_l0", "rnns.0.weight_ih_l0", "decoder.bias"] {
            assert_eq!(plain(&under_weight_dropout(name)).0, name);
        }
        assert_eq!(under_weight_dropout("rnns.0.weight_hh_l0"), "rnns.0.module.weight_hh_l0_raw");
        assert_eq!(under_weight_dropout("rnns.0.bias_hh_l0"), "rnns.0.module.bias_hh_l0");
    }
}
