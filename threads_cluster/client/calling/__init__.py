"""Calls of Python functions on runners, with the interface of `concurrent.futures`.

A function and its arguments travel as pickles from the client to a program in the guard of a runner. Servers store
these pickles, but never load them. Values and exceptions are loaded only in the client that called the function.
"""
