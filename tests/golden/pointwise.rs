//! Logit maps by themselves: value, slope and gradients.

use burn::tensor::Tensor;
use highrank::LogitMapConfig;
use highrank_kernels::Floats;

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};
use crate::head::{load_map, map_gradients};

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let config = match case.entry.head.as_deref() {
        Some("sigsoftmax") => LogitMapConfig::Sigsoftmax,
        Some("gss") => LogitMapConfig::Gss,
        Some("plif") => {
            LogitMapConfig::Plif { knots: case.array("param.plif_v").shape[0], bound: case.number("plif.t") }
        }
        Some("mononet") => LogitMapConfig::MonotonicNet { units: case.array("param.mononet_v").shape[0] },
        other => {
            report.fail(format!("unknown function `{}`", other.unwrap_or("none")));
            return;
        }
    };
    let mut map = config.init(&on.device);
    load_map(case, on, &mut map);
    let tolerance = Tolerance::new(&case.entry, on);

    let x = || case.tensor::<1>("x", on).require_grad();
    let input = x();
    let y = map.forward(input.clone());
    report.compare("y", &values(y.clone()), case.array("y"), tolerance.value("y"));
    let slope = input.grad(&y.sum().backward()).expect("a gradient of x");
    report.compare("dy_dx", &values(slope), case.array("dy_dx"), tolerance.value("dy_dx"));

    let cotangent = || case.tensor::<1>("cotangent", on);
    let input = x();
    let store = (map.forward(input.clone()) * cotangent()).sum().backward();
    let mut got = map_gradients(&map, &store);
    got.insert("x", input.grad(&store).map(values));
    for (name, got) in got {
        let want = case.array(&format!("grad.{name}"));
        let got = got.unwrap_or_default();
        report.compare(&format!("grad.{name}"), &got, want, tolerance.value("grad"));
    }

    // The hand-written derivative that the fused likelihood uses.
    let count = case.array("x").values.len();
    let flat = |tensor: Tensor<1>| Floats::from(tensor.inner().reshape([1, count]));
    let table = map.packed_params().map(|params| map.function().table(Floats::from(params.inner())));
    let (dx, _) = map.function().vjp(flat(x()), table.as_ref(), flat(cotangent()));
    report.compare("fused grad.x", &values(dx.tensor::<2>()), case.array("grad.x"), tolerance.value("grad"));
}
