//! The LSTM layer with DropConnect, and its activation regularisers.

use awd_lstm::lstm::{LstmState, LstmWeights, lstm_sequence};
use awd_lstm::regularisation;
use burn::tensor::Tensor;

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let tolerance = Tolerance::new(&case.entry, on);
    fn tracked<const D: usize>(case: &Case, name: &str, on: &Setting) -> Tensor<D> {
        case.tensor::<D>(name, on).require_grad()
    }
    let x: Tensor<3> = tracked(case, "x", on);
    let (h0, c0): (Tensor<2>, Tensor<2>) = (tracked(case, "h0", on), tracked(case, "c0", on));
    let weights = LstmWeights {
        w_ih: tracked(case, "param.w_ih", on),
        w_hh: tracked(case, "param.w_hh", on),
        b_ih: tracked(case, "param.b_ih", on),
        b_hh: tracked(case, "param.b_hh", on),
        hh_mask: Some(case.tensor("hh_mask", on)),
        precision: highrank::Precision::Full,
    };
    let state = LstmState { hidden: h0.clone(), cell: c0.clone() };
    let (out, end) = lstm_sequence(x.clone(), state, weights.clone());
    report.compare("out", &values(out.clone()), case.array("out"), tolerance.value("out"));
    report.compare("h_t", &values(end.hidden), case.array("h_t"), tolerance.value("h_t"));
    report.compare("c_t", &values(end.cell), case.array("c_t"), tolerance.value("c_t"));
    let loss = (out * case.tensor("out_weights", on)).sum();
    report.compare("loss", &values(loss.clone()), case.array("loss"), tolerance.value("loss"));

    let store = loss.backward();
    let got = [
        ("x", x.grad(&store).map(values)),
        ("h0", h0.grad(&store).map(values)),
        ("c0", c0.grad(&store).map(values)),
        ("w_ih", weights.w_ih.grad(&store).map(values)),
        ("w_hh", weights.w_hh.grad(&store).map(values)),
        ("b_ih", weights.b_ih.grad(&store).map(values)),
        ("b_hh", weights.b_hh.grad(&store).map(values)),
    ];
    for (name, got) in got {
        let name = format!("grad.{name}");
        report.compare(&name, &got.unwrap_or_default(), case.array(&name), tolerance.value("grad"));
    }
}

pub fn check_regularisation(case: &Case, on: &Setting, report: &mut Report) {
    let tolerance = Tolerance::new(&case.entry, on);
    let mask = || case.tensor::<3>("dropout_mask", on);
    let (alpha, beta) = (case.number("alpha"), case.number("beta"));
    let out = || case.tensor::<3>("out", on).require_grad();
    let ar = |out: Tensor<3>| regularisation::activation(out * mask(), alpha);
    let tar = |out: Tensor<3>| regularisation::temporal(out, beta);
    let both = |out: Tensor<3>| ar(out.clone()) + tar(out);
    type Term<'a> = &'a dyn Fn(Tensor<3>) -> Tensor<1>;
    let terms: [(&str, &str, Term<'_>); 3] =
        [("ar", "grad_ar.out", &ar), ("tar", "grad_tar.out", &tar), ("loss", "grad.out", &both)];
    for (name, gradient, term) in terms {
        let input = out();
        let value = term(input.clone());
        report.compare(name, &values(value.clone()), case.array(name), tolerance.value(name));
        let got = input.grad(&value.backward()).map(values).unwrap_or_default();
        report.compare(gradient, &got, case.array(gradient), tolerance.value("grad"));
    }
}
