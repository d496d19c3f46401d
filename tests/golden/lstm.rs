//! The LSTM layer with DropConnect, and its activation regularisers.

use awd_lstm::lstm::{LstmBackend, LstmState, LstmWeights, lstm_sequence};
use awd_lstm::regularisation;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor};

use crate::case::Case;
use crate::compare::{Report, Tolerance, values};

pub fn check<B: AutodiffBackend + LstmBackend>(case: &Case, dtype: DType, report: &mut Report) {
    let tolerance = Tolerance::new(&case.entry, dtype);
    fn tracked<B: AutodiffBackend, const D: usize>(case: &Case, name: &str, dtype: DType) -> Tensor<B, D> {
        case.tensor::<B, D>(name, dtype).require_grad()
    }
    let x: Tensor<B, 3> = tracked(case, "x", dtype);
    let (h0, c0): (Tensor<B, 2>, Tensor<B, 2>) = (tracked(case, "h0", dtype), tracked(case, "c0", dtype));
    let weights = LstmWeights::<B> {
        w_ih: tracked(case, "param.w_ih", dtype),
        w_hh: tracked(case, "param.w_hh", dtype),
        b_ih: tracked(case, "param.b_ih", dtype),
        b_hh: tracked(case, "param.b_hh", dtype),
        hh_mask: Some(case.tensor("hh_mask", dtype)),
        precision: highrank::Precision::Full,
    };
    let state = LstmState { hidden: h0.clone(), cell: c0.clone() };
    let (out, end) = lstm_sequence(x.clone(), state, weights.clone());
    report.compare("out", &values(out.clone()), case.array("out"), tolerance.value("out"));
    report.compare("h_t", &values(end.hidden), case.array("h_t"), tolerance.value("h_t"));
    report.compare("c_t", &values(end.cell), case.array("c_t"), tolerance.value("c_t"));
    let loss = (out * case.tensor("out_weights", dtype)).sum();
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

pub fn check_regularisation<B: AutodiffBackend>(case: &Case, dtype: DType, report: &mut Report) {
    let tolerance = Tolerance::new(&case.entry, dtype);
    let mask = || case.tensor::<B, 3>("dropout_mask", dtype);
    let (alpha, beta) = (case.number("alpha"), case.number("beta"));
    let out = || case.tensor::<B, 3>("out", dtype).require_grad();
    let ar = |out: Tensor<B, 3>| regularisation::activation(out * mask(), alpha);
    let tar = |out: Tensor<B, 3>| regularisation::temporal(out, beta);
    let both = |out: Tensor<B, 3>| ar(out.clone()) + tar(out);
    type Term<'a, B> = &'a dyn Fn(Tensor<B, 3>) -> Tensor<B, 1>;
    let terms: [(&str, &str, Term<'_, B>); 3] =
        [("ar", "grad_ar.out", &ar), ("tar", "grad_tar.out", &tar), ("loss", "grad.out", &both)];
    for (name, gradient, term) in terms {
        let input = out();
        let value = term(input.clone());
        report.compare(name, &values(value.clone()), case.array(name), tolerance.value(name));
        let got = input.grad(&value.backward()).map(values).unwrap_or_default();
        report.compare(gradient, &got, case.array(gradient), tolerance.value("grad"));
    }
}
