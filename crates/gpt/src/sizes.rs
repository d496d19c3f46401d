//! Models of equal numbers of parameters.

use burn::tensor::Device;
use runs::Error;

use crate::GptConfig;

impl GptConfig {
    /// The same with feed-forward parts as wide as bring the number of parameters nearest to `parameters`.
    ///
    /// # Errors
    /// What [`num_params`](Self::num_params) says, or if even parts of width 1 are too much.
    pub fn with_parameters(&self, parameters: usize, device: &Device) -> Result<Self, Error> {
        let of_width = |width| self.clone().with_d_ff(Some(width));
        let count = |width| of_width(width).num_params(device);
        let least = count(1)?;
        let Some(rest) = parameters.checked_sub(least) else {
            let reason = format!(
                "with a feed-forward part of width 1 the model has {least} already; narrow it, or take fewer layers or components"
            );
            return Err(Error::Size { parameters, reason });
        };
        // The number grows by as much with every width.
        let slope = count(2)? - least;
        Ok(of_width(1 + (rest + slope / 2) / slope))
    }
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
            assert_eq!(model.with_parameters(given, &device).unwrap().d_ff, Some(4 * m));
            for (off, width) in [(-100, 4 * m - 2), (-20, 4 * m), (20, 4 * m), (30, 4 * m + 1)] {
                let found = model.with_parameters(given.strict_add_signed(off), &device).unwrap();
                assert_eq!(found.d_ff, Some(width), "a unit has 50 parameters, asked for {off} more");
            }
        }
        let small = GptConfig::new(m, HeadConfig::softmax(m, v).with_tied(true));
        let message = small.with_parameters(2000, &device).unwrap_err().to_string();
        assert!(message.contains("parameters is 2000, but with a feed-forward part of width 1"), "{message}");
    }
}
