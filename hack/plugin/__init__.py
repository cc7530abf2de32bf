"""The kubectl plugin for people without a checkout: one program file for each platform, its archive, a krew manifest.

`make plugin` writes them to dist/plugin. The program is a zipapp of our wheel and exactly the wheels of
requirements.lock, for every Python version that the project supports; pex makes it, also for other platforms than this.
"""
