//! Logit maps by themselves: value, slope and gradients.

use burn::module::Param;
use burn::tensor::{Int, Tensor};
use highrank::HeadConfig;

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};
use crate::head::{load_parameters, map_config, map_parameters, parameter_gradients};

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let name = case.entry.head.as_deref().unwrap_or("none");
    let Some(config) = map_config(case, name) else {
        return report.fail(format!("unknown function `{name}`"));
    };
    let mut map = config.init(&on.device);
    load_parameters(map_parameters(&mut map), case, on);
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
    let mut got = parameter_gradients(map_parameters(&mut map), &store);
    got.insert("x".into(), input.grad(&store).map(values));
    for (name, got) in got {
        let want = case.array(&format!("grad.{name}"));
        let got = got.unwrap_or_default();
        report.compare(&format!("grad.{name}"), &got, want, tolerance.value("grad"));
    }

    // The derivative that a fused loss uses. Of two words with the same logit x each has probability 1/2: that of the nll of one
    // by the logit of the other is f'(x)/2.
    let mut head = HeadConfig::softmax(2, 2).with_bias(false).init(&on.device);
    head.logit_map = map;
    let words = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0]], (&on.device, on.dtype));
    head.decoder.weight = Some(Param::from_tensor(words));
    let input = x();
    let columns = [input.clone(), x().detach()].map(|x| x.unsqueeze_dim::<2>(1));
    let targets = Tensor::<1, Int>::ones(input.dims(), &on.device);
    let nll = head.nll(Tensor::cat(columns.into(), 1), targets);
    let dx = input.grad(&(nll * cotangent() * 2.0).sum().backward()).expect("a gradient of x");
    report.compare("fused grad.x", &values(dx), case.array("grad.x"), tolerance.value("grad"));
}
