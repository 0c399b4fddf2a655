"""Tables go to standard output, and are not cut short where it is no terminal."""

from cli.consoles import table_console


def test_width_without_a_terminal(capsys):
    console = table_console(200)
    assert console.width == 200
    console.print("x" * 150 + " y")
    assert capsys.readouterr().out == "x" * 150 + " y\n"
