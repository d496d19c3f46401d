//! Models of equal numbers of parameters.

use burn::tensor::Device;
use gpt::GptConfig;

use crate::failure::Failure;

/// The model with the feed-forward parts whose width brings its number of parameters nearest to `parameters`.
///
/// # Errors
/// What the configuration says, or if even parts of width 1 are too much.
pub fn of_parameters(model: &GptConfig, parameters: usize, device: &Device) -> Result<GptConfig, Failure> {
    let of_width = |width| model.clone().with_d_ff(Some(width));
    let count = |width| of_width(width).num_params(device);
    let least = count(1)?;
    let Some(rest) = parameters.checked_sub(least) else {
        return Err(format!(
            "--parameters is {parameters}, but with a feed-forward part of width 1 the model has {least} already; narrow it by \
             --d-model, or take fewer --layers or --components"
        )
        .into());
    };
    // The number grows by as much with every width.
    let slope = count(2)? - least;
    Ok(of_width(1 + (rest + slope / 2) / slope))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use highrank::HeadConfig;

    #[test]
    fn the_nearest_width_is_taken() {
        let (m, v, device) = (12, 200, Device::flex());
        let params = |model: &GptConfig| model.num_params(&device).unwrap();
        let heads = [HeadConfig::softmax(m, v), HeadConfig::plif(m, v, 100), HeadConfig::mos(m, m, v, 5)];
        for model in heads.map(|head| GptConfig::new(m, head.with_tied(true)).with_layers(2)) {
            let given = params(&model);
            assert_eq!(of_parameters(&model, given, &device).unwrap().d_ff, Some(4 * m));
            for (off, width) in [(-100, 4 * m - 2), (-20, 4 * m), (20, 4 * m), (30, 4 * m + 1)] {
                let found = of_parameters(&model, given.strict_add_signed(off), &device).unwrap();
                assert_eq!(found.d_ff, Some(width), "a unit has 50 parameters, asked for {off} more");
            }
        }
        let small = GptConfig::new(m, HeadConfig::softmax(m, v).with_tied(true));
        let message = of_parameters(&small, 2000, &device).unwrap_err().to_string();
        assert!(
            message.contains("--parameters is 2000, but with a feed-forward part of width 1"),
            "{message}"
        );
    }
}
