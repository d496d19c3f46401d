//! The priors of a mixture's components, for the tests of heads and the reference data.

use burn::tensor::Tensor;
use burn::tensor::activation::log_softmax;
use highrank::OutputHead;
use highrank::context::Context;

/// `π` of every token, `[N, K]`, by Burn's operations.
pub fn priors(head: &OutputHead, hidden: Tensor<2>) -> Tensor<2> {
    let layer = match &head.context {
        Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) => &mixture.prior,
        Context::DirectOutputConnection(connection) => &connection.prior,
        other => panic!("no priors: {other}"),
    };
    // Of several layers the last gives the priors.
    let ([_, all], [last, _]) = (hidden.dims(), layer.weight.shape().dims());
    log_softmax(layer.forward(hidden.narrow(1, all - last, last)), 1).exp()
}
