"""What ``ctxb doctor`` looks at: a module a part of an installation, which lists its checks."""
