"""What ``turnout data fetch`` can download: where each file comes from, and the checksum that it must have."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.data.emnist import FOLDER, SPLITS, files_of


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Attributes:
        path: where it goes, relative to the data directory.
        url: where it comes from.
        checksum: its SHA-256, or ``"md5:..."``.
        members: for an archive, tar or zip: (path in the archive and in the data directory, MD5) of each file to take out
            of it. Without an MD5 a file that is there counts as right.
        inside: the folder of the members in the archive, where it is another one than here.
    """

    path: str
    url: str
    checksum: str
    members: tuple[tuple[str, str], ...] = ()
    inside: str = ""


def _files(folder: str, base: str, checksums: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(f"{folder}/{name}", base + name, checksum) for name, checksum in checksums.items())


_MNIST = _files(
    "MNIST/raw",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)

_FASHION_MNIST = _files(
    "FashionMNIST/raw",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)

_QMNIST = _files(
    "QMNIST/raw",
    "https://raw.githubusercontent.com/facebookresearch/qmnist/94061367ec2e099ea18c553c75727ecf849ddb9b/",
    {
        "qmnist-train-labels-idx2-int.gz": "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
        "qmnist-test-labels-idx2-int.gz": "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
    },
)

_CIFAR10 = (
    RemoteFile(
        "cifar-10-binary.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        members=(
            ("cifar-10-batches-bin/data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
            ("cifar-10-batches-bin/data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
            ("cifar-10-batches-bin/data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
            ("cifar-10-batches-bin/data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
            ("cifar-10-batches-bin/data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
            ("cifar-10-batches-bin/test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
    ),
)

_EMNIST = (
    RemoteFile(
        "EMNIST/gzip.zip",
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        members=tuple((f"{FOLDER}/{name}", "") for split in SPLITS for name in files_of(split)),
        inside="gzip",
    ),
)

_SHAKESPEARE = _files(
    "Shakespeare/plays",
    "https://raw.githubusercontent.com/martin-gorner/tensorflow-rnn-shakespeare/"
    "25946cd6486e8a8f96d84edb200a8b8b6e961c27/shakespeare/",
    {
        "1kinghenryiv.txt": "7590d173c0be7dba0e2322b357ad33e5e65375d7af154c4ad4d7350d86652780",
        "1kinghenryvi.txt": "715e55cc52c1150bcc9ae8fb91dd61a0773d76f3750fece25978b9f8783e1d90",
        "2kinghenryiv.txt": "4a9f52f2db3ed3f0c150eefb96e25941a4a0b402addfc559581e9025186e42e5",
        "2kinghenryvi.txt": "b282843daec114f4d0104330a94a700d217ac31ce3e3fa7aa24c3e296d9992f9",
        "3kinghenryvi.txt": "6156dfad1cd8844c645ddcdc1f4db4e02397f84669ca589cfc148123170863fb",
        "allswellthatendswell.txt": "3bad3562a52b3439cb63c6f267f3fb50ef44116eafd2429011ee9908d4b832bb",
        "antonyandcleopatra.txt": "4cecd44a3320f7d66dc04fb0a50c5250b589ae8a7f8990f8eb98086b19595876",
        "asyoulikeit.txt": "eaa3526fe53859f34ecdf255712f9ecf0b2c903451d4755b2edaa2e2599cb0fc",
        "comedyoferrors.txt": "d53fcfe394885515efa22e36ac945702a899908afbc1b827ee3459cfdfca0c78",
        "coriolanus.txt": "13d7e0259fcd46cdafb125ae0b6cc8b2432fdb4fe59afba55179adea955748b5",
        "cymbeline.txt": "b5bb1a49d38e1b62b14d7c35c5d932acf740cc8c7e08fbb76ebb8379bb103b3a",
        "hamlet.txt": "1846810b98f3dce4174a488cd19f3e7ceabff2a4b00487089fbcb2891003d847",
        "juliuscaesar.txt": "d4b1254e22888a272f4245b6af4aa9b9c61fc24798d30cd0287ff9491f4d8f5f",
        "kinghenryv.txt": "62cbcdfd774cdbc30b20032ef5be5ac92d678581612567f0b54d1cdcb7fd59c5",
        "kinghenryviii.txt": "63fc4a4ec60c4c72eac474917d0c234b9fe15d19deda213c857d911a386a3c49",
        "kingjohn.txt": "251870ca2777912eed076fc30ccb32e88784a124b6ef365855bb31a1ebac34a9",
        "kinglear.txt": "674a2725884307c96398440497c889ad8cecccedf5689df85e6b0faabe4e0fe8",
        "kingrichardii.txt": "7af43884757911af0b365a9b5544e75c4d6c423c40f6b3b289b5a39756fdb1e5",
        "kingrichardiii.txt": "0b5ef70294ed26ffe2c5496e3723650e8bef5ac178c83287ef7735d9c5d2f9d5",
        "loveslabourslost.txt": "b7521b8ae6d6cff3cd4c709edfb1d9776a40756a9fc0d86d3676ed9f1621269e",
        "macbeth.txt": "339afa674ac54e5038bd610056e87b0ba70f6543b2fbcfea421bfd0fbbc21e7f",
        "measureforemeasure.txt": "1449c06143bdf48eaddf989f9136c8dbd36cf3893d75420f854085c8226ca93e",
        "merchantofvenice.txt": "54b95ab530e81bfcd03325b6bd7b14d20d1a9d41a38c2d8867c3fa8da1b6292c",
        "merrywivesofwindsor.txt": "85dfbea19962e8d21479debc0f0df48c244f05ec99e0cba9d41da0f01739a16c",
        "midsummersnightsdream.txt": "684b22072f158a7965e942d7e9b633bf7c6c65b14a7b519631bbf2f826349370",
        "muchadoaboutnothing.txt": "fad832e284ccabb6fcb5dc3dd34d2636a07358d6474f10eed8e9ed98050208ee",
        "othello.txt": "e1590d00e121e53587157fa952e0da4070b76721599ebcedce3bb698228adbab",
        "periclesprinceoftyre.txt": "f03561e0fb339fd38359093bf6a0c63bfa2c3ba1eafe66ef50aacfe91295a739",
        "romeoandjuliet.txt": "1cd830b4a8154da63839a2379f15c2e820b8fa5a339a3b751fc554a8e14af327",
        "tamingoftheshrew.txt": "87f9d1f22bb050276d1677012ea09d853aadc542ca84adcd44b82f48b4870438",
        "tempest.txt": "1f20301e552d43aaaca298af6f36334319934fac98b24306e6836d849386e6e8",
        "timonofathens.txt": "a01c9ebbf5d31936571997a4a13d3a3554ec3b081956b4da0b4a12d7f4d7581e",
        "titusandronicus.txt": "5135117e84fa127c7a4b0e376bb5ab97ac99cdad7da51ba463ba40febca44801",
        "troilusandcressida.txt": "fdf3a04f0a92ec3c61ea7349d301c4d4eae1805dfa6d6c2d6e477aeabc76e4df",
        "twelfthnight.txt": "68a44a35e82462d4f0217d2a40db874a431d666626691a806b63339118831039",
        "twogentlemenofverona.txt": "53f40375e388911699a92321eff4585ab391ecb45b0c64c0bca0389b0b767413",
        "winterstale.txt": "9a1c8f6f73264b2bfb7e1b674cc2c8690da8c3eedffc911f28de7deec449d6cd",
    },
)

REMOTE: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": _MNIST,
    "fashion_mnist": _FASHION_MNIST,
    "qmnist": _QMNIST,
    "mnist_by_writer": _MNIST + _QMNIST,
    "cifar10": _CIFAR10,
    "emnist": _EMNIST,
    "shakespeare": _SHAKESPEARE,
}
"""Files of each data set that can be downloaded."""

ELSEWHERE: dict[str, str] = {
    "declared": "with clients: data.inputs=SHAPE data.classes=C say what a server needs",
    "digits": "inside scikit-learn: pip install 'turnout[digits]'",
    "instructions": "a file of your own: data.path=FILE data.client=FIELD",
    "femnist": "written by LEAF's data/femnist/preprocess.sh",
    "sent140": "written by LEAF's data/sent140/preprocess.sh",
    "digits_binary": "inside scikit-learn: pip install 'turnout[digits]'",
    "mnist_binary": "turnout data fetch mnist",
    "synthetic": "drawn when it is used",
    "synthetic_iid": "drawn when it is used",
    "table": "a file of your own: data.path=FILE data.label=COLUMN data.client=COLUMN",
}
"""Where data sets come from that cannot be downloaded here."""
