//! Heads, modes and options, each once.

use super::*;

/// Small, beside a product that takes no time.
#[test]
fn every_head_is_timed() {
    for line in [
        "mos",
        "softmax --layers burn",
        "soft-cap --cap 5",
        "monotonic-net --units 3",
        "gss --precision bf16",
        "doc --d-lower 5 --lower-components 1 --options prior-cv",
        "mixtape --frequent 7 --d-gate 3",
        "mixtape --mode top-k --k 5",
        "adaptive --targets zipf",
        "adaptive --mode decode",
        "adaptive --cutoffs 4,9 --division 2 --mode log-probs",
        "mos --cutoffs 4 --mode nll --targets zipf",
        "softmax --dtype bf16",
        "softmax --mode top-k --k 20",
        "plif --knots 8 --mode decode",
        "moc --mode sample",
    ] {
        let sizes = "--tokens 8 --d-hidden 6 --d-embedding 4 --vocab 20 --components 2 --repeats 1";
        let words = format!("head_throughput {sizes} --head {line}");
        let args = HeadThroughputArgs::try_parse_from(words.split(' ')).unwrap();
        let config = args.head_config();
        args.validate().unwrap();
        args.check_work(&config).unwrap();
        let device = device::open(DeviceName::Flex).unwrap();
        let measured = measure(&args, &config, DeviceName::Flex, &device, 16).unwrap();
        for value in [measured.median_ms, measured.tokens_per_s, measured.ceiling_gflops, measured.of_ceiling]
        {
            assert!(value.is_finite() && value > 0.0, "{value} of {line}");
        }
        assert!(measured.params > 0 && !measured.loss.is_nan(), "{line}");
        assert_eq!((measured.mode, measured.dtype), (args.mode, args.dtype));
        assert_eq!(measured.over_plain.is_some(), args.options != LossOption::Plain, "{line}");
    }
}
