"""Equations of docstrings on the site."""

import pytest
from scripts.equations import latex


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("u = (1/N) sum_b omega_b Delta_b", r"u = ( 1 / N ) \sum _{b} \omega _{b} \Delta _{b}"),
        ("||w - w^t||^2", r"\lVert w - w ^{t} \rVert ^{2}"),
        ("I_b = <grad_1 f, grad F_b>", r"I _{b} = \langle \nabla _{1} f , \nabla F _{b} \rangle"),
        ("x <- x + eta m / (sqrt(v) + tau)", r"x \leftarrow x + \eta m / ( \sqrt{v} + \tau )"),
        ("m <- beta1 m + (1 - beta1) u", r"m \leftarrow \beta_{1} m + ( 1 - \beta_{1} ) u"),
        ("F_b^(q+1) / (q+1)", r"F _{b} ^{q + 1} / ( q + 1 )"),
        ("x <- x + server_lr v", r"x \leftarrow x + \mathrm{server\_lr} v"),
        ("E[tau] B + 1 = 1 / p", r"\mathbb{E} [ \tau ] B + 1 = 1 / p"),
        ("num_steps_k = tau / s_k", r"\mathrm{num\_steps} _{k} = \tau / s _{k}"),
        ("v_i <- v_i'", r"v _{i} \leftarrow v _{i}'"),
    ],
)
def test_equation_is_recognized(text, tex):
    assert latex(text) == tex


@pytest.mark.parametrize(
    "text",
    [
        "[B, P]",
        "[N + 1]",
        "also=(Prox(mu),)",
        'client_rows = ("table",)',
        "local.lr",
        "x",
        "x_b = (what b started from) + Delta_b",
        "P(more than s) = exp(-s / scale)",
        "e_b <- Delta_b + e_b - what was sent",
        "P(X + Y <= s) = mean over p of P(Y <= s - x(p)) = q",
        "(x + y",
        "||x + y",
        "x <- y_b_c",
        "pip install '.[all]'",
    ],
)
def test_other_code_is_unchanged(text):
    assert latex(text) is None
