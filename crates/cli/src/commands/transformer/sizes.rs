//! Models of equal numbers of parameters.

use burn::tensor::Device;
use gpt::GptConfig;

use crate::failure::Failure;

/// The model whose number of parameters is nearest to `budget`, of those that `of_width` makes of a width of the embedding.
///
/// # Errors
/// What the configurations say, or if even an embedding of width 1 is too much.
pub fn matching(
    of_width: impl Fn(usize) -> GptConfig,
    budget: usize,
    device: &Device,
) -> Result<GptConfig, Failure> {
    let d_model = of_width(1).d_model;
    let parameters = |width| of_width(width).num_params(device).map(|count| count as f64);
    // The number grows by the same amount with every width but the transformer's own, where the layers between the two
    // widths are not needed.
    let (first, second) = (d_model + 1, d_model + 2);
    let slope = parameters(second)? - parameters(first)?;
    let exact = first as f64 + (budget as f64 - parameters(first)?) / slope;
    if exact < 1.0 {
        let least = parameters(1)?;
        return Err(format!(
            "the softmax model has {budget} parameters, but one with this head has {least} with an embedding of \
             width 1 already; give a larger --d-embedding, or fewer components or knots"
        )
        .into());
    }
    let off = |width| Ok::<_, Failure>((parameters(width)? - budget as f64).abs());
    let mut nearest = d_model;
    for width in [exact.floor() as usize, exact.ceil() as usize] {
        if off(width)? < off(nearest)? {
            nearest = width;
        }
    }
    Ok(of_width(nearest))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use highrank::HeadConfig;

    #[test]
    fn the_nearest_width_is_taken() {
        let (m, v, device) = (12, 200, Device::flex());
        let of = |head: fn(usize, usize, usize) -> HeadConfig| {
            move |width| GptConfig::new(m, head(m, width, v).with_tied(true)).with_layers(1)
        };
        let softmax = of(|_, d, v| HeadConfig::softmax(d, v));
        let heads: [fn(usize, usize, usize) -> HeadConfig; 4] = [
            |_, d, v| HeadConfig::softmax(d, v),
            |_, d, v| HeadConfig::plif(d, v, 100),
            |m, d, v| HeadConfig::mos(m, d, v, 5),
            |m, d, v| HeadConfig::mos_plif(m, d, v, 3, 50),
        ];
        for width in [m, 20] {
            let budget = softmax(width).num_params(&device).unwrap();
            for head in heads {
                let model = matching(of(head), budget, &device).unwrap();
                let off = |model: &GptConfig| model.num_params(&device).unwrap().abs_diff(budget);
                for other in 1..40 {
                    assert!(
                        off(&model) <= off(&of(head)(other)),
                        "{other} is nearer than {}",
                        model.head.d_embedding
                    );
                }
            }
            assert_eq!(matching(softmax, budget, &device).unwrap(), softmax(width));
        }
        let message =
            matching(of(|_, d, v| HeadConfig::plif(d, v, 100_000)), 5000, &device).unwrap_err().to_string();
        assert!(message.contains("has 5000 parameters, but one with this head has"), "{message}");
    }
}
