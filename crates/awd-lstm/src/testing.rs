//! What tests of several modules share.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::store::{ModuleSnapshot, bridge};
use burn::tensor::Tensor;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::data::Corpus;

use crate::language::{Language, LanguageConfig};

/// A corpus of a small language, of 30 words, with as many tokens for training and for validation, and 300 for the test.
pub(crate) fn corpus_of(train: usize, valid: usize) -> Corpus {
    let config = LanguageConfig { vocab: 30, topics: 3, classes: 3, favourites: 4, ..Default::default() };
    let language = Language::new(config).unwrap();
    let text = |tokens: usize, seed| language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
    Corpus::from_ids(language.vocabulary(), text(train, 1), text(valid, 2), text(300, 3)).unwrap()
}

/// All weights of a module, in the order of the fields.
pub(crate) fn weights(module: &impl ModuleSnapshot) -> Vec<Vec<f32>> {
    let tensors = module.collect(None, None, false);
    tensors.iter().map(|tensor| bridge::to_data(tensor).unwrap().try_to_vec().unwrap()).collect()
}

/// The gradients of all parameters, each of which must have one.
pub(crate) fn gradients_of(module: &impl Module, grads: &GradientsParams) -> Vec<Vec<f64>> {
    struct Read<'a>(&'a GradientsParams, Vec<Vec<f64>>);
    impl ModuleVisitor for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let grad = self.0.get::<D>(param.id).expect("every parameter has a gradient");
            assert_eq!(grad.dims(), param.dims());
            self.1.push(grad.into_data().iter().collect());
        }
    }
    let mut read = Read(grads, vec![]);
    module.visit(&mut read);
    read.1
}
